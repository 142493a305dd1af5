"""Flink's own page against a job that restarts again and again, and jobs that have ended in each way; for bench/soak.

Each page is loaded while its job restarts, whole once the job runs again, and still open while the next attempt ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.pages.disturbed_jobs import (
    IS_KILLED,
    RAISES,
    DisturbedJob,
    Job,
    disturbed_job,
    ended_jobs,
)
from tests.support.browser import Browser, browser
from tests.support.flinks_pages import PAGES, Shown, ask, leave, logged_from, moved, unexpected, what_fails
from yarrow.cli.dashboard_command import get_dashboard
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.config.options import resourcemanager, web

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.skipif(not os.environ.get("YARROW_SOAK"), reason="takes minutes: bench/soak --pages"),
]
#: How often each page of a job that restarts is loaded.
ROUNDS = int(os.environ.get("YARROW_PAGES_ROUNDS", "1"))
#: Enough for all jobs beside slots whose worker was killed: there is one TaskExecutor, whose pages are shown.
SLOTS = 8
#: In the paths of the pages of one job that has ended, and of one that runs.
ENDED_ONE, RUNNING_ONE = "{ended}", "{running}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MiniCluster]:
    """Its page asks anew each second."""
    configuration = {
        web.PAGES.key: str(get_dashboard(say=lambda text: None)),
        web.REFRESH_INTERVAL.key: "1 s",
        # A page of one that is released would ask in vain: whoever was killed may be followed on another one.
        resourcemanager.TASK_MANAGER_TIMEOUT.key: "1 h",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
    }
    with logged_from(logging.INFO), mini_cluster(1, SLOTS, configuration=configuration) as made:
        yield made


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Browser]:
    folder = tmp_path / "profile"
    folder.mkdir()
    with browser(folder) as opened:
        yield opened


@pytest.mark.parametrize("how", [RAISES, IS_KILLED])
def test_each_page_loads_while_its_job_restarts(
    cluster: MiniCluster, window: Browser, tmp_path: Path, how: str
) -> None:
    (ended, *_) = ended_jobs(cluster)
    wrong: dict[str, list[str]] = {}
    with disturbed_job(cluster, tmp_path, how) as job:
        shown = shown_on(cluster, job, ended)
        for page in [page for page in PAGES if ENDED_ONE not in page] * ROUNDS:
            note(wrong, page, over_a_restart(window, shown, page, job))
    assert wrong == {}


def test_each_page_of_ended_jobs_loads(cluster: MiniCluster, window: Browser, tmp_path: Path) -> None:
    wrong: dict[str, list[str]] = {}
    jobs = ended_jobs(cluster)
    with disturbed_job(cluster, tmp_path, RAISES) as job:
        for ended in jobs:
            for page in [page for page in PAGES if RUNNING_ONE not in page] * ROUNDS:
                failures = what_fails(window, shown_on(cluster, job, ended), page)
                note(wrong, f"{page}, {ended.name}", failures)
    assert wrong == {}


def shown_on(cluster: MiniCluster, running: Job, ended: Job) -> Shown:
    """The pages with the ids of these two."""
    address = str(cluster.web_address)
    executor = ask(f"{address}/taskmanagers")["taskmanagers"][0]["id"]
    logs = ask(f"{address}/taskmanagers/{executor}/logs")["logs"]
    names = {
        "running": running.job_id,
        "running_name": running.name,
        "vertex": ask(f"{address}/jobs/{running.job_id}")["vertices"][1]["id"],
        "ended": ended.job_id,
        "ended_name": ended.name,
        "executor": executor,
        "log": next(file["name"] for file in logs if file["name"].endswith(".log")),
    }
    return Shown(address, names)


def over_a_restart(window: Browser, shown: Shown, page: str, job: DisturbedJob) -> list[str]:
    """Shows a page while the job's attempt ends, loads it anew meanwhile, and stays until the job runs again."""

    def is_whole(text: str) -> bool:
        return shown.is_whole(window, page, text)

    failures = window.show(shown.address_of(page), is_whole)
    job.end_attempt()
    failures += window.stay(lambda text: True)
    window.leave()
    failures += window.show(shown.address_of(page), is_whole)
    failures += window.stay(lambda text: job.runs_again() and is_whole(text))
    failures += moved(window, shown, page)
    leave(window, page)
    return unexpected(page, failures)


def note(wrong: dict[str, list[str]], page: str, failures: list[str]) -> None:
    """Prints what came of a page; each of its failures once, since a page asks again and again."""
    found = sorted(set(failures))
    print(page, found or "loads", flush=True)
    if found:
        wrong[page] = sorted({*wrong.get(page, []), *found})
