"""Typed errors of snapshots: what cannot be written, read, restored or stored.

Owner: none (raised on the task thread, the snapshot thread or the JobMaster's executor). Each message names the
file, operator or state, says what was expected and what to do. None of them is retried by the code that raises it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from yarrow.runtime.common.errors import YarrowError


class SnapshotError(YarrowError):
    """Base of the errors of snapshots."""


class StateSerializationError(SnapshotError):
    """A value of a state that its serializer cannot write or read; names operator and state."""


class UntrustedPickleError(StateSerializationError):
    """Pickled values in a snapshot that nobody declared to be trusted: reading them could run foreign code."""


class StateMigrationError(SnapshotError):
    """State that the present program declares differently from the one that wrote it, in a way nothing converts.

    `field` is the path of the field within the value, "" for the value itself.
    """

    def __init__(self, operator: str, state: str, field: str, was: str, now: str, remedy: str) -> None:
        place = f", field '{field}'" if field else ""
        super().__init__(
            f"operator '{operator}', state '{state}'{place}: the snapshot holds {was}, the program declares {now}. "
            f"{remedy}"
        )
        self.operator = operator
        self.state = state
        self.field = field
        self.was = was
        self.now = now


class CorruptSnapshotError(SnapshotError):
    """A file of a snapshot that is torn, truncated, changed or of another kind; `path` names it."""

    def __init__(self, path: str, problem: str, remedy: str = "") -> None:
        advice = remedy or "Restore from another checkpoint or savepoint."
        super().__init__(f"{path}: {problem}. {advice}")
        self.path = path
        self.problem = problem


class SnapshotStorageError(SnapshotError):
    """A snapshot storage that cannot do what was asked: missing, refused or occupied paths."""


class SnapshotWriteError(SnapshotStorageError):
    """A file of a snapshot that cannot be written: no room, no permission.

    `path` names the file, `states` its content where that is known.
    """

    def __init__(self, path: str, problem: object, states: Sequence[str] = ()) -> None:
        listed = ", ".join(f"'{name}'" for name in states)
        of_states = f"state{'s' if len(states) > 1 else ''} {listed}: " if states else ""
        super().__init__(
            f"{of_states}{path}: it cannot be written ({problem}). Check the space and who may write there."
        )
        self.path = path
        self.problem = problem
        self.states = tuple(states)


@contextlib.contextmanager
def writing_states(names: Iterable[str]) -> Iterator[None]:
    """A file that cannot be written within is said to be of these states."""
    try:
        yield
    except SnapshotWriteError as error:
        raise SnapshotWriteError(error.path, error.problem, tuple(names)) from error.__cause__


class SnapshotNotFoundError(SnapshotStorageError):
    """A pointer at which no checkpoint or savepoint lies."""


class MissingSnapshotFilesError(SnapshotStorageError):
    """Files that a checkpoint refers to and that are gone or shorter than they were; `files` names them."""

    def __init__(self, pointer: str, files: Sequence[str]) -> None:
        shown = ", ".join(files[:10]) + (f" and {len(files) - 10} more" if len(files) > 10 else "")
        super().__init__(
            f"{pointer}: {len(files)} of its files cannot be restored: {shown}. "
            "Put them back, or restore from another checkpoint or savepoint."
        )
        self.files = tuple(files)


class StateTooLargeError(SnapshotStorageError):
    """State that would have to travel inside messages and is larger than allowed."""


class SavepointMismatchError(SnapshotError):
    """A savepoint that does not fit the job; `operator` is the name of the operator concerned."""

    def __init__(self, operator: str, message: str) -> None:
        super().__init__(message)
        self.operator = operator


class SnapshotFormatError(SnapshotError):
    """Bytes that are not of the form that their place announces: of a later release, or damaged."""
