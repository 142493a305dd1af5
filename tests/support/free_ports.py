"""Ports for servers of tests: none is given twice, and no outgoing connection takes one meanwhile."""

from __future__ import annotations

import os

from tests.support.services.ports import free_ports

_ports = free_ports(f"tests of process {os.getpid()}")


def free_port() -> int:
    """The next one on which nobody listens."""
    return next(_ports)
