"""RecordedEnd: the stored end of an application, until YARN knows it; an attempt in between only reports it.

Owner: blocking. The record lies beside the results of jobs, which stay as long.
"""

from __future__ import annotations

import logging

import msgspec

from yarrow.am.dispatcher.job_graph_store import RESULTS
from yarrow.am.yarn.modes.application_end import ApplicationEnd
from yarrow.runtime.ha.records import LeaderRecords, Put

END_RECORD = f"{RESULTS}/application"
_log = logging.getLogger(__name__)


def record_end(records: LeaderRecords, end: ApplicationEnd) -> None:
    """Records the end: from now on no attempt runs anything of the application. Raises RecordsError."""
    records.write(Put(END_RECORD, msgspec.json.encode(end)))


def recorded_end(records: LeaderRecords) -> ApplicationEnd | None:
    """The end that a former attempt has recorded. Raises RecordsError."""
    data = records.read(END_RECORD)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=ApplicationEnd)
    except msgspec.DecodeError as error:
        _log.error("the record of the end of the application, %s, cannot be decoded: %s", END_RECORD, error)
        return None
