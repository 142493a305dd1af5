"""Typed errors of the RocksDB state backend: each names operator, path and, if there is one, state.

Owner: none (values). A task that meets one fails; unwritten state is part of no checkpoint.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError


class RocksDBError(YarrowError):
    """RocksDB or the disk below it refused a call."""

    def __init__(self, operator: str, state: str | None, path: str, action: str, cause: object) -> None:
        of_state = f", state '{state}'" if state is not None else ""
        super().__init__(
            f"operator '{operator}'{of_state}: RocksDB cannot {action} in {path}: {cause}. "
            "Look for a full disk, missing permissions or a damaged file there; the job restarts from its last "
            "checkpoint."
        )
        self.operator = operator
        self.state = state
        self.path = path


class StateValueTooLargeError(YarrowError):
    """A value is too large for RocksDB."""

    def __init__(self, operator: str, state: str, key: object, size: int, limit: int) -> None:
        shown = repr(key)
        super().__init__(
            f"operator '{operator}', state '{state}', key {shown[:200]}: the value has {size} bytes, RocksDB holds at "
            f"most {limit}. Divide it over a list or map state, or use HashMapStateBackend."
        )
        self.state = state
        self.size = size


class RocksDBFolderError(YarrowError):
    """A folder for databases cannot be made or written."""
