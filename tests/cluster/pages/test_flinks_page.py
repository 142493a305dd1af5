"""Flink's own page in a real browser, against a running and an ended job: each of its pages loads whole.

No request fails and no script fails, save on the pages of `NOT_YET`.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.pages.browser import PATIENCE, Browser, browser
from yarrow.cli.dashboard_command import get_dashboard
from yarrow.common import Types
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.config.options import web

#: Pages that ask for what is not there yet, by the path they ask in vain. The list may only shrink.
NOT_YET = {
    "job-manager/profiler": "/jobmanager/profiler",
    "task-manager/{executor}/profiler": "/profiler",
    "job/running/{running}/overview/{vertex}/flamegraph": "/flamegraph",
}
NOT_YET_AT_MOST = 3

#: Pages and what stands on each when it is whole.
PAGES = {
    "overview": "sum by key",
    "submit": "Uploaded Jars",
    "application/running": "sum by key",
    "application/completed": "print two",
    "job/running": "sum by key",
    "job/completed": "print two",
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
    "application/completed/{ended}/overview": "print two",
    "application/completed/{ended}/exceptions": "Root Exception",
    "job/running/{running}/overview": "Keyed Reduce",
    "job/running/{running}/timeline": "Vertex TimeLine",
    "job/running/{running}/exceptions": "Exception History",
    "job/running/{running}/dataskew": "What is Data Skew",
    "job/running/{running}/checkpoints": "Latest Completed Checkpoint",
    "job/running/{running}/configuration": "User Configuration",
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


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """One job runs and has completed a checkpoint, another has ended."""
    folder = tmp_path_factory.mktemp("checkpoints")
    archive = get_dashboard(say=lambda text: None)
    configuration = {web.PAGES.key: str(archive), "execution.checkpointing.dir": folder.as_uri()}
    with logged_from(logging.INFO), mini_cluster(1, 4, configuration=configuration) as cluster:
        env = cluster.get_execution_environment({"parallelism.default": "2"})
        env.from_collection(["two words"]).map(lambda text: text).print()
        ended = env.execute("print two").get_job_id()
        job = run_on(cluster)
        try:
            address = str(cluster.web_address)
            running = str(job.get_job_id())
            wait_for_a_checkpoint(f"{address}/jobs/{running}/checkpoints")
            executor = ask(f"{address}/taskmanagers")["taskmanagers"][0]["id"]
            logs = ask(f"{address}/taskmanagers/{executor}/logs")["logs"]
            names = {
                "running": running,
                "ended": str(ended),
                "vertex": ask(f"{address}/jobs/{running}")["vertices"][1]["id"],
                "executor": executor,
                "log": next(file["name"] for file in logs if file["name"].endswith(".log")),
            }
            yield Shown(address, names)
        finally:
            if not job.get_job_status().result(PATIENCE).is_globally_terminal_state():
                job.cancel().result(PATIENCE)


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


def slowly(number: int) -> tuple[int, int]:
    """So that the job leaves the machine to the browser."""
    time.sleep(0.01)
    return number % 10, 1


def run_on(cluster: MiniCluster) -> Any:
    env = cluster.get_execution_environment(
        {"parallelism.default": "2", "execution.checkpointing.interval": "500 ms"}
    )
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    numbers = env.from_sequence(1, 10**12).map(slowly, output_type=pair)
    sums = numbers.key_by(lambda row: row[0]).reduce(lambda first, second: (first[0], first[1] + second[1]))
    sums.filter(lambda row: False).print()
    return env.execute_async("sum by key")


def wait_for_a_checkpoint(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ask(address)["counts"]["completed"]:
        assert time.monotonic() < deadline, ask(address)
        time.sleep(0.05)


@pytest.mark.cluster
def test_each_page_loads_whole_and_a_job_is_cancelled_from_them(shown: Shown, tmp_path: Path) -> None:
    assert set(NOT_YET) <= set(PAGES)
    assert len(NOT_YET) <= NOT_YET_AT_MOST
    with browser(tmp_path) as window:
        assert set(EDITORS) <= set(PAGES)
        wrong = {page: failures for page in PAGES if (failures := what_fails(window, shown, page))}
        assert wrong == {}
        window.show(f"{shown.address}/#/job/running", lambda text: "sum by key" in text)
        assert asked_by_the_page(window, f"jobs/{shown.names['running']}/yarn-cancel") == 202
        assert window.show(f"{shown.address}/#/job/completed", lambda text: "sum by key" in text) == []


def what_fails(window: Browser, shown: Shown, page: str) -> list[str]:
    """All that goes wrong on a page, but for what is known to."""
    address = f"{shown.address}/#/{page.format(**shown.names)}"
    mark = PAGES[page].format(**shown.names)
    has_editor = page in EDITORS
    failures = window.show(address, lambda text: mark in text and (not has_editor or window.has(_EDITOR)))
    if window.driver.current_url != address:
        failures.append(f"moved to {window.driver.current_url}")
    if has_editor or page.endswith(_DRAWN):
        window.leave()
    expected = NOT_YET.get(page)
    if expected is None:
        return failures
    if not any(expected in failure for failure in failures):
        return ["this page loads now: take it off the list"]
    return [failure for failure in failures if expected not in failure]


def asked_by_the_page(window: Browser, path: str) -> int:
    """The status of the answer to a request that the page itself makes, as its buttons do."""
    script = "const done = arguments[1]; fetch(arguments[0]).then(answer => done(answer.status))"
    return int(window.driver.execute_async_script(script, path))
