"""RecordedCheckpointRecovery: checkpoint pointers and the counter of ids, stored as records of one leadership.

Owner: any thread of the master's process; calls block. One lock for each job makes read-then-write atomic. No
other process writes these records during this leadership, and no write of this leadership is accepted after
it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from yarrow.am.checkpoint.recovery_store import CheckpointPointer, RecoveryStoreError, UnknownOutcomeError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import Delete, LeaderRecords, Put, RecordsError, UnknownWriteError

CHECKPOINTS = "checkpoints"
#: Version of the pointers' records.
POINTER_VERSION = 1


class _Pointer(msgspec.Struct, frozen=True, kw_only=True):
    version: int = POINTER_VERSION
    path: str
    epoch: int
    owned: bool = True
    claimed: bool = False


class RecordedCheckpointRecovery:
    """The CheckpointRecovery of one leadership with high availability."""

    def __init__(self, records: LeaderRecords) -> None:
        self._records = records

    def of_job(self, job_id: JobID) -> RecordedRecoveryStore:
        """See CheckpointRecovery."""
        return RecordedRecoveryStore(self._records, job_id)

    def remove(self, job_id: JobID) -> None:
        """Removes all records of a job that has ended for good; may be repeated. Raises RecoveryStoreError."""
        RecordedRecoveryStore(self._records, job_id).close(terminal=True)


class RecordedRecoveryStore:
    """The CheckpointRecoveryStore of one job under one leadership."""

    def __init__(self, records: LeaderRecords, job_id: JobID) -> None:
        self._records = records
        self._job_id = job_id
        self._folder = f"{CHECKPOINTS}/{job_id}"
        self._lock = threading.Lock()
        #: The highest id that this object took. An id whose write was lost is not taken again.
        self._spent = 0

    def next_checkpoint_id(self) -> int:
        """See CheckpointRecoveryStore."""
        with self._translated():
            pointers = self._records.children(f"{self._folder}/pointers")
            return 1 + max([self._number("highest", 0), self._spent, *map(int, pointers)])

    def use_checkpoint_id(self, checkpoint_id: int) -> None:
        """See CheckpointRecoveryStore."""
        with self._lock, self._translated():
            stored = self._number("highest", 0)
            highest = max(stored, self._spent)
            if checkpoint_id <= highest:
                raise RecoveryStoreError(
                    f"checkpoint id {checkpoint_id} of job {self._job_id} is not above {highest}, which was used"
                    " already: does another JobMaster of this job run?"
                )
            self._spent = checkpoint_id
            number = str(checkpoint_id).encode()
            # Written together, so that whoever finds the highest id also finds this job's first one.
            first = () if stored else (Put(f"{self._folder}/first", number),)
            self._records.write(Put(f"{self._folder}/highest", number), *first)

    def begun_ids(self) -> range:
        """See CheckpointRecoveryStore."""
        with self._translated():
            first = self._number("first", 0)
            return range(first, self._number("highest", 0) + 1) if first else range(0)

    def completed(self) -> tuple[CheckpointPointer, ...]:
        """See CheckpointRecoveryStore."""
        with self._translated():
            numbers = sorted(map(int, self._records.children(f"{self._folder}/pointers")))
            found = [self._pointer(number) for number in numbers]
        return tuple(pointer for pointer in found if pointer is not None)

    def add(
        self, checkpoint_id: int, path: str, *, owned: bool = True, claimed: bool = False
    ) -> CheckpointPointer:
        """See CheckpointRecoveryStore."""
        record = _Pointer(path=path, epoch=self._records.epoch, owned=owned, claimed=claimed)
        with self._lock, self._translated():
            former = self._pointer(checkpoint_id)
            if former is not None:
                if former.path != path:
                    raise RecoveryStoreError(
                        f"checkpoint {checkpoint_id} of job {self._job_id} is at {former.path} already, not at {path}"
                    )
                record = msgspec.structs.replace(record, epoch=former.epoch)
            # Written even if it exists: only a write proves that this leadership still lasts.
            self._records.write(Put(self._place(checkpoint_id), msgspec.json.encode(record)))
        return _as_pointer(checkpoint_id, record)

    def discard(self, checkpoint_id: int) -> None:
        """See CheckpointRecoveryStore."""
        with self._lock, self._translated():
            self._records.write(Delete(self._place(checkpoint_id)))

    @property
    def latest_savepoint_id(self) -> int:
        """See CheckpointRecoveryStore."""
        with self._translated():
            return self._number("savepoint", -1)

    def note_savepoint(self, checkpoint_id: int) -> None:
        """See CheckpointRecoveryStore."""
        with self._lock, self._translated():
            self._put("savepoint", max(checkpoint_id, self._number("savepoint", -1)))

    def close(self, terminal: bool) -> None:
        """See CheckpointRecoveryStore."""
        if terminal:
            with self._lock, self._translated():
                self._records.write(Delete(self._folder))

    def _place(self, checkpoint_id: int) -> str:
        return f"{self._folder}/pointers/{checkpoint_id}"

    def _pointer(self, checkpoint_id: int) -> CheckpointPointer | None:
        data = self._records.read(self._place(checkpoint_id))
        if data is None:
            return None
        try:
            record = msgspec.json.decode(data, type=_Pointer)
        except msgspec.DecodeError as error:
            raise RecoveryStoreError(
                f"the pointer to checkpoint {checkpoint_id} of job {self._job_id} does not decode: {error}"
            ) from error
        if record.version != POINTER_VERSION:
            raise RecoveryStoreError(
                f"the pointer to checkpoint {checkpoint_id} of job {self._job_id} has version {record.version}, this"
                f" master reads {POINTER_VERSION}: run the version that wrote it"
            )
        return _as_pointer(checkpoint_id, record)

    def _number(self, name: str, otherwise: int) -> int:
        data = self._records.read(f"{self._folder}/{name}")
        return otherwise if data is None else int(data)

    def _put(self, name: str, number: int) -> None:
        self._records.write(Put(f"{self._folder}/{name}", str(number).encode()))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except UnknownWriteError as error:
            raise UnknownOutcomeError(
                "the outcome of an access to the checkpoint pointers of job "
                f"{self._job_id} is unknown: {error}"
            ) from error
        except RecordsError as error:
            raise RecoveryStoreError(
                f"the checkpoint pointers of job {self._job_id} cannot be read or written: {error}"
            ) from error


def _as_pointer(checkpoint_id: int, record: _Pointer) -> CheckpointPointer:
    return CheckpointPointer(
        checkpoint_id=checkpoint_id,
        path=record.path,
        epoch=record.epoch,
        owned=record.owned,
        claimed=record.claimed,
    )
