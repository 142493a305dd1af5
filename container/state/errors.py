"""Typed errors of keyed state: what a program may not do with a state, or a backend cannot keep.

Owner: none (raised on the task thread). Each message names operator and state, says what was expected and what to do.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import InvalidProgramError, YarrowError


class StateConflictError(InvalidProgramError):
    """Two states of one operator bear the same name."""


class StateBackendError(InvalidProgramError):
    """A state backend that does not exist, cannot be loaded or cannot restore what it is given."""


class NoneInStateError(YarrowError, TypeError):
    """None was to be added to a state that keeps values only."""


class StateMutationError(YarrowError):
    """A value got from state was changed and not written back; found in debug mode only."""
