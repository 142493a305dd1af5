"""The base of all messages, and the version of the protocol.

Owner: none (frozen values). A changed field of any message is a changed protocol: raise PROTOCOL_VERSION with it.
"""

from __future__ import annotations

import msgspec

PROTOCOL_VERSION = 13


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Acknowledge(Message, frozen=True, kw_only=True):
    """The call was executed."""
