"""Ports of services and of tests: each is given once on this machine."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.source_tree import ROOT
from tests.support.services.ports import free_ports

SEED = "ports of a test"


def test_a_port_that_is_given_is_nobody_elses_before_its_server_listens() -> None:
    given = next(free_ports(SEED))
    assert next(free_ports(SEED)) != given
    code = f"from tests.support.services.ports import free_ports; print(next(free_ports({SEED!r})))"
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(other.stdout) != given
