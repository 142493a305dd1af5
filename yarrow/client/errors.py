"""Errors of clients: of commands, of executors, and of the programs they submit."""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError


class CommandError(YarrowError):
    """A command cannot do its work; the message says what to do."""
