"""Typed errors of snapshots that cannot be written, read, restored or stored.

Owner: none (raised on the task thread, the snapshot thread or the JobMaster's executor). Each message names
the file, operator or state, says what was expected and what to do. The code that raises one never retries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from yarrow.runtime.common.errors import YarrowError


class SnapshotError(YarrowError):
    """Base of the errors of snapshots."""


class StateSerializationError(SnapshotError):
    """A state's serializer cannot write or read a value; names operator and state."""


class UntrustedPickleError(StateSerializationError):
    """A snapshot has pickled values and was not declared trusted: reading them could run foreign code."""


class StateMigrationError(SnapshotError):
    """The program declares state in another way than its writer did, and no conversion exists.

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
    """A file of a snapshot is torn, truncated, changed or of another kind; `path` names it."""

    def __init__(self, path: str, problem: str, remedy: str = "") -> None:
        advice = remedy or "Restore from another checkpoint or savepoint."
        super().__init__(f"{path}: {problem}. {advice}")
        self.path = path
        self.problem = problem


class SnapshotStorageError(SnapshotError):
    """A snapshot storage cannot fulfil a request: a path is missing, refused or occupied."""


class SnapshotWriteError(SnapshotStorageError):
    """A file of a snapshot cannot be written: no room, no permission.

    `path` names the file, `states` its content if that is known.
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
    """Adds these states to the error of a file that cannot be written within."""
    try:
        yield
    except SnapshotWriteError as error:
        raise SnapshotWriteError(error.path, error.problem, tuple(names)) from error.__cause__


class SnapshotNotFoundError(SnapshotStorageError):
    """A pointer leads to no checkpoint or savepoint."""


class MissingSnapshotFilesError(SnapshotStorageError):
    """Files of a checkpoint are gone or too short; `files` names them."""

    def __init__(self, pointer: str, files: Sequence[str]) -> None:
        shown = ", ".join(files[:10]) + (f" and {len(files) - 10} more" if len(files) > 10 else "")
        super().__init__(
            f"{pointer}: {len(files)} of its files cannot be restored: {shown}. "
            "Put them back, or restore from another checkpoint or savepoint."
        )
        self.files = tuple(files)


class StateTooLargeError(SnapshotStorageError):
    """State for a message is larger than allowed."""


class SavepointMismatchError(SnapshotError):
    """A savepoint does not fit the job; `operator` is the name of the operator at fault."""

    def __init__(self, operator: str, message: str) -> None:
        super().__init__(message)
        self.operator = operator


class SnapshotFormatError(SnapshotError):
    """Bytes do not have the expected form: they come from a later release, or are damaged."""
