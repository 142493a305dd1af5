"""Why containers of Spark's application on YARN have ended. Of executors, Spark tells that in its driver's log alone.

Owner: any thread. It reads that log. Must not decide what a lost executor costs the job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from yarrow.container.batch.full_disks import REMEDY_ON_YARN, tells_of_full_disk
from yarrow.runtime.common.short_text import cut_in_the_middle

_LOST: Final = re.compile(r"Requesting driver to remove executor (\S+) for reason (.*)")
#: The begin of each entry of the log.
_ENTRY: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
#: YARN's times within a reason.
_TIME: Final = re.compile(r"\[\d{4}-\d\d-\d\d [\d:.]+\]\s*")
#: The beginning of lines that give a link, and no reason.
_LINKS: Final = "For more detailed output"
#: Bytes at the end of the log.
_LOOKED_AT: Final = 64 * 1024
_LONGEST: Final = 1000


def last_lost_executor(log_file: Path) -> str:
    """The executor that was lost last, why, and the remedy if a disk was full; "" = the log tells of none."""
    lines = _end_of(log_file)
    places = [place for place, line in enumerate(lines) if _LOST.search(line)]
    if not places:
        return ""
    found = _LOST.search(lines[places[-1]])
    assert found is not None
    said = [found[2]]
    for line in lines[places[-1] + 1 :]:
        if _ENTRY.match(line):
            break
        said.append(line)
    return f"Executor {found[1]} was lost last: {yarns_reason(said)}"


def yarns_reason(said: Iterable[str]) -> str:
    """What YARN says of a container that has ended, in one line, with the remedy if a disk was full."""
    told = ""
    for line in said:
        line = _TIME.sub("", line).strip(" .")
        # YARN repeats its lines.
        if line and line not in told and not line.startswith(_LINKS):
            told += f" {line}"
    reason = cut_in_the_middle(told.strip(), _LONGEST)
    return f"{reason}: free that disk, or {REMEDY_ON_YARN}" if tells_of_full_disk(reason) else reason


def _end_of(log_file: Path) -> list[str]:
    try:
        with open(log_file, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LOOKED_AT))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
