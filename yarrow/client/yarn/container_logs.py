"""Reads the last words of a failed application from the logs that YARN has gathered.

Owner: the client's thread; blocking: `yarn logs` is a JVM, so it runs for failures alone. Skein's own log
reader knows only the log folders of older versions of Hadoop.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

#: Logs that tell why a master ended, the most telling first: its own, its script's, Skein's.
_TELLING: Final = ("jobmanager.log", "application.driver.log", "jobmanager.err", "application.master.log")
_SECTION: Final = re.compile(
    r"^LogType:(?P<name>[^\n]+)\n.*?^LogContents:\n(?P<text>.*?)^End of LogType", re.DOTALL | re.MULTILINE
)
_TAIL_LINES: Final = 12
_TAIL_CHARACTERS: Final = 4000


def gathered_logs(application_id: str, environment: Mapping[str, str], timeout: float) -> str:
    """The output of `yarn logs` for an application; empty if there is none in time."""
    program = shutil.which("yarn", path=environment.get("PATH"))
    if program is None:
        return ""
    try:
        found = subprocess.run(
            [program, "logs", "-applicationId", application_id],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return ""
    return found.stdout.decode(errors="replace")


def last_words(logs: str) -> str:
    """The end of the most telling non-empty log, under its name; empty if there is none."""
    sections = {found["name"].strip(): found["text"].strip() for found in _SECTION.finditer(logs)}
    for name in _TELLING:
        text = sections.get(name, "")
        if text:
            tail = "\n".join(text.splitlines()[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]
            return f"The end of {name}:\n{tail}"
    return ""
