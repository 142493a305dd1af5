"""LeaderRecords: small records that outlive a master, written under one leadership; and their form in memory.

Owner: any thread; calls block, several may run at once. Paths are relative to the cluster id, parts joined by `/`.
Records are pointers and marks of some hundred bytes: payloads go to storage. Nothing here knows jobs or checkpoints.
"""

from __future__ import annotations

import threading
from typing import Protocol

import msgspec

from yarrow.runtime.common.errors import YarrowError


class RecordsError(YarrowError):
    """A read or write had no effect: the store refused it, or could not be reached."""


class LeadershipLostError(RecordsError):
    """A write was refused and changed nothing, because another master has led since."""


class UnknownWriteError(RecordsError):
    """Whether a write has taken place, or still will, is not known: the connection broke while it was under way."""


class Put(msgspec.Struct, frozen=True):
    """A change that gives the record this content; missing parents are made."""

    path: str
    data: bytes


class Delete(msgspec.Struct, frozen=True):
    """A change that removes the record and all below it."""

    path: str


Change = Put | Delete


class LeaderRecords(Protocol):
    """The records of one cluster id, as one leadership may write them."""

    @property
    def epoch(self) -> int:
        """The leadership's number."""
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a record; None when there is none. RecordsError while the store cannot be reached."""
        ...

    def children(self, path: str) -> tuple[str, ...]:
        """Names of the records right below, sorted; none when there is no such record. RecordsError."""
        ...

    def write(self, *changes: Change) -> None:
        """Apply all changes or none; a change without effect is no error. Returns when all is durable.

        LeadershipLostError when this leadership is over; UnknownWriteError; RecordsError.
        """
        ...


class RecordsInMemory:
    """The records of a cluster that ends with its process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, bytes] = {}
        self._epoch = 0

    def next_leadership(self) -> LeaderRecords:
        """The same records under a new leadership; earlier ones may write no more."""
        with self._lock:
            self._epoch += 1
            return _Leadership(self, self._epoch)

    def of_epoch(self, epoch: int) -> LeaderRecords:
        """The records as that leadership sees them."""
        return _Leadership(self, epoch)

    def read(self, path: str) -> bytes | None:
        """See LeaderRecords."""
        with self._lock:
            return self._records.get(path)

    def children(self, path: str) -> tuple[str, ...]:
        """See LeaderRecords."""
        below = f"{path}/"
        with self._lock:
            return tuple(
                sorted(
                    {name[len(below) :].partition("/")[0] for name in self._records if name.startswith(below)}
                )
            )

    def write(self, epoch: int, *changes: Change) -> None:
        """See LeaderRecords."""
        with self._lock:
            if epoch != self._epoch:
                raise LeadershipLostError(f"epoch {epoch} is over, {self._epoch} leads: nothing was written")
            for change in changes:
                if isinstance(change, Put):
                    self._records[change.path] = change.data
                else:
                    below = f"{change.path}/"
                    for name in [
                        each for each in self._records if each == change.path or each.startswith(below)
                    ]:
                        del self._records[name]


class _Leadership:
    def __init__(self, records: RecordsInMemory, epoch: int) -> None:
        self._records = records
        self.epoch = epoch

    def read(self, path: str) -> bytes | None:
        return self._records.read(path)

    def children(self, path: str) -> tuple[str, ...]:
        return self._records.children(path)

    def write(self, *changes: Change) -> None:
        self._records.write(self.epoch, *changes)
