"""The pages of Flink's own dashboard: what stands on each when it is whole, and how one is shown and looked at.

Owner: the test that has the browser. Must not know which jobs run: their ids are given.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.browser import PATIENCE, Browser

#: Pages that ask for what is not there yet, by the path they ask in vain. The list may only shrink.
NOT_YET = {
    "job-manager/profiler": "/jobmanager/profiler",
    "task-manager/{executor}/profiler": "/profiler",
    "job/running/{running}/overview/{vertex}/flamegraph": "/flamegraph",
}
NOT_YET_AT_MOST = 3

#: Pages and what stands on each when it is whole.
PAGES = {
    "overview": "{running_name}",
    "submit": "Uploaded Jars",
    "application/running": "{running_name}",
    "application/completed": "{ended_name}",
    "job/running": "{running_name}",
    "job/completed": "{ended_name}",
    "task-manager": "{executor}",
    "job-manager/metrics": "Outside JVM",
    "job-manager/config": "web.pages",
    "job-manager/logs": "INFO",
    "job-manager/stdout": "Thread Dump",
    "job-manager/log": "{log}",
    "job-manager/log/{log}": "{log}",
    "job-manager/thread-dump": "_bootstrap_inner",
    "job-manager/profiler": "Profiling Mode",
    "task-manager/{executor}/metrics": "Managed Memory",
    "task-manager/{executor}/logs": "INFO",
    "task-manager/{executor}/stdout": "two words",
    "task-manager/{executor}/log-list": "{log}",
    "task-manager/{executor}/log-list/{log}": "{log}",
    "task-manager/{executor}/thread-dump": "_bootstrap_inner",
    "task-manager/{executor}/profiler": "Profiling Mode",
    "application/running/{running}/overview": "Running Job List",
    "application/running/{running}/exceptions": "Root Exception",
    "application/completed/{ended}/overview": "{ended_name}",
    "application/completed/{ended}/exceptions": "Root Exception",
    "job/running/{running}/overview": "Keyed Reduce",
    "job/running/{running}/timeline": "Vertex TimeLine",
    "job/running/{running}/exceptions": "Exception History",
    "job/running/{running}/dataskew": "What is Data Skew",
    "job/running/{running}/checkpoints": "Latest Completed Checkpoint",
    # Each entry of the user's configuration is shown; the path of Spark's own pages is one.
    "job/running/{running}/configuration": "execution.checkpointing.interval",
    "job/running/{running}/rescales": "Rescale Counts",
    "job/running/{running}/overview/{vertex}/detail": "Max Parallelism",
    "job/running/{running}/overview/{vertex}/subtasks": "Subtask Metrics",
    "job/running/{running}/overview/{vertex}/taskmanagers": "127.0.0.1",
    "job/running/{running}/overview/{vertex}/watermarks": "Watermark",
    "job/running/{running}/overview/{vertex}/accumulators": "Vertex Accumulators",
    "job/running/{running}/overview/{vertex}/backpressure": "Back Pressure Status",
    "job/running/{running}/overview/{vertex}/metrics": "Add Metric",
    "job/running/{running}/overview/{vertex}/flamegraph": "Off-CPU",
    "job/completed/{ended}/overview": "Collection Source",
    "job/completed/{ended}/timeline": "Vertex TimeLine",
    "job/completed/{ended}/exceptions": "Exception History",
    "job/completed/{ended}/checkpoints": "Checkpoint Counts",
    "job/completed/{ended}/configuration": "User Configuration",
    "job/completed/{ended}/rescales": "Rescale Counts",
}


#: Pages whose text stands in an editor. It is made after the page: left before it is there, the page itself fails.
EDITORS = (
    *(f"job-manager/{part}" for part in ("logs", "stdout", "log/{log}", "thread-dump")),
    *(f"task-manager/{{executor}}/{part}" for part in ("logs", "stdout", "log-list/{log}", "thread-dump")),
    *(f"application/{part}/exceptions" for part in ("running/{running}", "completed/{ended}")),
    *(f"job/{part}/exceptions" for part in ("running/{running}", "completed/{ended}")),
)
_EDITOR = ".monaco-editor .view-line"
#: Ends of pages that still draw when their text is there: the next page is shown in a new life of the browser's page.
_DRAWN = ("/timeline", "{running}/overview", "{ended}/overview", "/flamegraph")


@dataclass(frozen=True)
class Shown:
    """A cluster whose page is looked at."""

    address: str
    #: What stands for the names in braces.
    names: dict[str, str]

    def address_of(self, page: str) -> str:
        """Where the browser finds one of `PAGES`."""
        return f"{self.address}/#/{page.format(**self.names)}"

    def is_whole(self, window: Browser, page: str, text: str) -> bool:
        """Whether the text that is visible, and its editor, are those of the page."""
        return PAGES[page].format(**self.names) in text and (page not in EDITORS or window.has(_EDITOR))


def what_fails(window: Browser, shown: Shown, page: str) -> list[str]:
    """Loads a page; all that goes wrong on it, but for what is known to."""
    failures = window.show(shown.address_of(page), lambda text: shown.is_whole(window, page, text))
    failures += moved(window, shown, page)
    leave(window, page)
    expected = NOT_YET.get(page)
    if expected is not None and not any(expected in failure for failure in failures):
        return ["this page loads now: take it off the list"]
    return unexpected(page, failures)


def unexpected(page: str, failures: list[str]) -> list[str]:
    """Without those that the list of pages names."""
    expected = NOT_YET.get(page)
    return [failure for failure in failures if expected is None or expected not in failure]


def moved(window: Browser, shown: Shown, page: str) -> list[str]:
    """Where the browser is instead of on the page."""
    current = window.driver.current_url
    return [] if current == shown.address_of(page) else [f"moved to {current}"]


def leave(window: Browser, page: str) -> None:
    """Before the next page: one that still draws would fail in the middle of it."""
    if page in EDITORS or page.endswith(_DRAWN):
        window.leave()


def ask(address: str) -> Any:
    """The JSON answer of REST."""
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return json.load(answer)


@contextmanager
def logged_from(level: int) -> Iterator[None]:
    """The control plane's log has these lines, as where a program sets its logging so."""
    logger = logging.getLogger("yarrow")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
