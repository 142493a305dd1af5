"""ScheduleStore: the schedules of a cluster with their progress, found by the next leader.

Owner: blocking; the Dispatcher calls it through `run_blocking`. Each schedule is one small record, written under
the leadership for which the store was made. The job that it runs lies in the blob store.
"""

from __future__ import annotations

import msgspec

from yarrow.am.dispatcher.schedule_progress import ScheduleProgress
from yarrow.common.values.schedule import InvalidScheduleError, Schedule
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ScheduleID, is_hex_id
from yarrow.runtime.ha.records import Delete, LeaderRecords, Put

#: Version of the records; other versions are refused.
RECORD_VERSION = 1
SCHEDULES = "schedules"


class StoredScheduleError(YarrowError):
    """A stored schedule cannot be read: it is damaged, or of another version."""


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a schedule."""

    version: int = RECORD_VERSION
    name: str
    schedule: Schedule
    #: Key of the encoded JobGraph of its runs, in the blob store.
    job_graph: str
    #: Keys of the files that the job ships.
    blobs: tuple[str, ...] = ()
    progress: ScheduleProgress


class ScheduleStore:
    """The stored schedules of one cluster id, written under one leadership."""

    def __init__(self, records: LeaderRecords) -> None:
        self._records = records

    def put(self, schedule_id: ScheduleID, schedule: StoredSchedule) -> None:
        """Stores or replaces a schedule; returns when it is durable. Raises RecordsError."""
        if not is_hex_id(schedule_id):
            raise KeyError(schedule_id)
        self._records.write(Put(_path(schedule_id), msgspec.msgpack.encode(schedule)))

    def get(self, schedule_id: ScheduleID) -> StoredSchedule:
        """A stored schedule. Raises KeyError, StoredScheduleError and RecordsError."""
        data = self._records.read(_path(schedule_id))
        if data is None:
            raise KeyError(schedule_id)
        try:
            stored = msgspec.msgpack.decode(data, type=StoredSchedule)
        except (msgspec.DecodeError, InvalidScheduleError) as error:
            raise StoredScheduleError(
                f"the record of schedule {schedule_id} cannot be read: {error}. Cancel the schedule, and submit it"
                " again"
            ) from error
        if stored.version != RECORD_VERSION:
            raise StoredScheduleError(
                f"the record of schedule {schedule_id} has version {stored.version}, this master reads"
                f" {RECORD_VERSION}: run the version that stored it, or cancel the schedule"
            )
        return stored

    def ids(self) -> tuple[ScheduleID, ...]:
        """Ids of all stored schedules. Raises RecordsError."""
        return tuple(ScheduleID(name) for name in self._records.children(SCHEDULES) if is_hex_id(name))

    def remove(self, schedule_id: ScheduleID) -> None:
        """Removes a schedule; no effect if there is none. Raises RecordsError."""
        self._records.write(Delete(_path(schedule_id)))


def _path(schedule_id: ScheduleID) -> str:
    return f"{SCHEDULES}/{schedule_id}"
