"""`yarrow replay`: repeats the decisions in a dump of a JobMaster's scheduler.

No cluster is asked, nothing is started.

Owner: the main thread.
"""

from __future__ import annotations

from pathlib import Path

from yarrow.am.jobmaster.scheduling.replay import (
    DumpNotReadError,
    ReplayDifferenceError,
    read_dump,
    replay,
)
from yarrow.am.jobmaster.scheduling.scheduler_log import DUMP_BYTES
from yarrow.client.errors import CommandError


def run_replay(file: str) -> None:
    """Prints that all decisions are equal. Raises CommandError with the first that differs."""
    path = Path(file)
    try:
        with path.open("rb") as opened:
            data = opened.read(DUMP_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from error
    if len(data) > DUMP_BYTES:
        raise CommandError(f"{file} has more than {DUMP_BYTES} bytes, which no dump of a JobMaster has.")
    try:
        dump = read_dump(data)
        replay(dump)
    except DumpNotReadError as error:
        raise CommandError(f"{file}: {error}") from error
    except ReplayDifferenceError as error:
        raise CommandError(f"{file}: {error}.") from error
    events = dump.events
    span = f" (numbers {events[0].number} to {events[-1].number})" if events else ""
    print(f"The job {dump.snapshot.job.name!r}: {len(events)} events{span} lead to the same actions.")
    for logged in events:
        if logged.error:
            print(f"Event {logged.number} ({type(logged.event).__name__}) raises {logged.error}, as it did.")
