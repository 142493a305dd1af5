"""Typed errors of keyed state: forbidden uses of a state, and values that a backend cannot keep.

Owner: none (raised on the task thread). Each message names operator and state, says what was expected and
what to do.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import InvalidProgramError, YarrowError


class StateConflictError(InvalidProgramError):
    """Two states of one operator have the same name."""


class StateBackendError(InvalidProgramError):
    """A state backend does not exist, cannot be loaded, or cannot restore its snapshot."""


class NoneInStateError(YarrowError, TypeError):
    """The program added None to a state that keeps values only."""


class StateMutationError(YarrowError):
    """A value from state was changed and not written back; found in debug mode only."""
