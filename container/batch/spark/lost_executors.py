"""Why YARN or Spark has lost executors: Spark tells that in the log of its driver, and nowhere else.

Owner: any thread. It reads that log. Must not decide what a lost executor costs the job.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from yarrow.container.batch.full_disks import REMEDY_ON_YARN, tells_of_full_disk
from yarrow.runtime.common.short_text import cut_in_the_middle

_LOST: Final = re.compile(r"Requesting driver to remove executor (\S+) for reason (.*)")
#: The begin of each entry of the log.
_ENTRY: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
#: YARN's times within a reason.
_TIME: Final = re.compile(r"\[\d{4}-\d\d-\d\d [\d:.]+\]\s*")
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
    reason = cut_in_the_middle(_in_a_line(said), _LONGEST)
    remedy = f": free that disk, or {REMEDY_ON_YARN}" if tells_of_full_disk(reason) else ""
    return f"Executor {found[1]} was lost last: {reason}{remedy}"


def _end_of(log_file: Path) -> list[str]:
    try:
        with open(log_file, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LOOKED_AT))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _in_a_line(said: list[str]) -> str:
    """The lines of a reason, each once: YARN repeats them."""
    told = ""
    for line in said:
        line = _TIME.sub("", line).strip(" .")
        if line and line not in told:
            told += f" {line}"
    return told.strip()
