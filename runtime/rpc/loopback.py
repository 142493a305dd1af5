"""Addresses by which a machine reaches itself.

Owner: any thread; constants. Must not look names up.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LOOPBACK", "LOOPBACK_NAMES"]

#: The address to which servers bind that no other machine may reach.
LOOPBACK: Final = "127.0.0.1"
#: What settings may say for it.
LOOPBACK_NAMES: Final = frozenset({"localhost", LOOPBACK, "::1"})
