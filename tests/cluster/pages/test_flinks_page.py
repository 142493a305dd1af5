"""Flink's own page in a real browser, against a running and an ended job: each of its pages loads whole.

No request fails and no script fails, save on the pages of `flinks_pages.NOT_YET`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import PATIENCE, Browser, browser
from tests.support.flinks_pages import (
    EDITORS,
    NOT_YET,
    NOT_YET_AT_MOST,
    PAGES,
    Shown,
    ask,
    logged_from,
    what_fails,
)
from yarrow.cli.dashboard_command import get_dashboard
from yarrow.common import Types
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.config.options import web

#: Names of the two jobs.
RUNNING, ENDED = "sum by key", "print two"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """One job runs and has completed a checkpoint, another has ended."""
    folder = tmp_path_factory.mktemp("checkpoints")
    archive = get_dashboard(say=lambda text: None)
    configuration = {web.PAGES.key: str(archive), "execution.checkpointing.dir": folder.as_uri()}
    with logged_from(logging.INFO), mini_cluster(1, 4, configuration=configuration) as cluster:
        env = cluster.get_execution_environment({"parallelism.default": "2"})
        env.from_collection(["two words"]).map(lambda text: text).print()
        ended = env.execute(ENDED).get_job_id()
        job = run_on(cluster)
        try:
            address = str(cluster.web_address)
            running = str(job.get_job_id())
            wait_for_a_checkpoint(f"{address}/jobs/{running}/checkpoints")
            executor = ask(f"{address}/taskmanagers")["taskmanagers"][0]["id"]
            logs = ask(f"{address}/taskmanagers/{executor}/logs")["logs"]
            names = {
                "running": running,
                "running_name": RUNNING,
                "ended": str(ended),
                "ended_name": ENDED,
                "vertex": ask(f"{address}/jobs/{running}")["vertices"][1]["id"],
                "executor": executor,
                "log": next(file["name"] for file in logs if file["name"].endswith(".log")),
            }
            yield Shown(address, names)
        finally:
            if not job.get_job_status().result(PATIENCE).is_globally_terminal_state():
                job.cancel().result(PATIENCE)


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
    return env.execute_async(RUNNING)


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
        window.show(f"{shown.address}/#/job/running", lambda text: RUNNING in text)
        assert asked_by_the_page(window, f"jobs/{shown.names['running']}/yarn-cancel") == 202
        assert window.show(f"{shown.address}/#/job/completed", lambda text: RUNNING in text) == []


def asked_by_the_page(window: Browser, path: str) -> int:
    """The status of the answer to a request that the page itself makes, as its buttons do."""
    script = "const done = arguments[1]; fetch(arguments[0]).then(answer => done(answer.status))"
    return int(window.driver.execute_async_script(script, path))
