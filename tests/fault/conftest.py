"""Faults: clusters live longer than a test, and what a plan started must be gone after it; the summary counts plans."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.support.faulty_network import FaultyNetwork
from yarrow.am.jobmaster.scheduling.replay import read_dump, replay
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions
from yarrow.am.jobmaster.scheduling.scheduler_events import SchedulerEvent
from yarrow.am.jobmaster.scheduling.scheduler_log import SchedulerLog
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.fault_plan import PlannedMessages

#: Seconds that workers of an ended job and killed TaskExecutors have to be gone.
GRACE = 180.0
_counted = {"plans": 0, "killed": 0, "bounded": 0, "replayed": 0}


def count_plan(*, killed: bool) -> None:
    """A plan whose fault fired between a completed checkpoint and the end, and whose output was right."""
    _counted["plans"] += 1
    _counted["killed"] += killed


def count_bounded_plan() -> None:
    """A plan of a bounded job whose fault fired, and whose output was right."""
    _counted["bounded"] += 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says how many plans counted."""
    if _counted["plans"]:
        terminalreporter.write_line(
            f"{_counted['plans']} fault plans counted, {_counted['killed']} of them with processes killed: each fired"
            " after a completed checkpoint and before the end"
        )
    if _counted["bounded"]:
        terminalreporter.write_line(f"{_counted['bounded']} fault plans of bounded jobs counted: each fired")
    if _counted["replayed"]:
        terminalreporter.write_line(f"{_counted['replayed']} dumps of JobMasters replayed: the same actions")


def workers() -> list[psutil.Process]:
    """Slot workers below this process; zombies are gone already."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("yarrow-slot") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(scope="module")
def killed_cluster(request: pytest.FixtureRequest) -> Iterator[MiniCluster]:
    """A cluster whose workers are processes, with the `CONFIGURATION` of the test's module."""
    with mini_cluster(1, 2, configuration=request.module.CONFIGURATION) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def messages() -> PlannedMessages:
    """The plans for messages of the cluster of threads."""
    return PlannedMessages()


@pytest.fixture(scope="module")
def threads_cluster(messages: PlannedMessages, request: pytest.FixtureRequest) -> Iterator[MiniCluster]:
    """A cluster that is all in this process, with the `CONFIGURATION` of the test's module."""
    network = FaultyNetwork(messages)
    settings = request.module.CONFIGURATION
    with mini_cluster(1, 2, processes=False, configuration=settings, network=network) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def decisions_replay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the masters of a test decided is decided again, from a dump of each job that the test has run here."""
    logs: list[SchedulerLog] = []
    handle = SchedulerLog.handle

    def noted(self: SchedulerLog, event: SchedulerEvent) -> Actions:
        if self not in logs:
            logs.append(self)
        return handle(self, event)

    monkeypatch.setattr(SchedulerLog, "handle", noted)
    yield
    for log in logs:
        data = log.dump("a test has ended")
        assert data is not None
        replay(read_dump(data))
        _counted["replayed"] += 1


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """No worker and no thread of a plan survives it; the cluster's own TaskExecutors do."""
    threads_before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + GRACE
    left = workers()
    while left and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.2)
        left = workers()
    assert not left, f"workers that outlive their job: {left}"
    for thread in set(threading.enumerate()) - threads_before:
        if not thread.daemon and not thread.name.startswith(("asyncio", "ThreadPool", "yarrow")):
            thread.join(GRACE)
            assert not thread.is_alive(), f"the test left the thread {thread.name} running"
