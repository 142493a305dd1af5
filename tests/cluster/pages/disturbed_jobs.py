"""Jobs whose attempts end when they are told to, and jobs that have ended in each way.

Owner: the test's thread, which waits for what it disturbs and never for a time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.browser import PATIENCE
from tests.support.flinks_pages import ask
from yarrow.common import Types
from yarrow.common.job_client import JobClient
from yarrow.common.job_status import JobStatus
from yarrow.datastream.functions import MapFunction, RuntimeContext
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.embedded.mini_cluster import MiniCluster

#: How a job is disturbed: its function raises, or its worker is killed.
RAISES, IS_KILLED = "raises", "is killed"
_LOOK = 0.05
_TWO = {"parallelism.default": "2"}


class Disturbed(MapFunction[int, tuple[int, int]]):
    """Keys for numbers; the attempt for which there is a file of its number in a folder ends."""

    def __init__(self, folder: str, how: str) -> None:
        self._folder = folder
        self._how = how

    def open(self, runtime_context: RuntimeContext) -> None:
        self._ends = Path(self._folder, str(runtime_context.get_attempt_number()))

    def map(self, value: int) -> tuple[int, int]:
        # So that the job leaves the machine to the browser.
        time.sleep(0.01)
        if self._ends.exists():
            if self._how == IS_KILLED:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError(f"attempt {self._ends.name} was told to end")
        return value % 10, 1


def sum_by_key(env: StreamExecutionEnvironment, name: str, folder: Path, how: str) -> JobClient:
    """Submits a job without end whose attempts end when files say so."""
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    numbers = env.from_sequence(1, 10**12).map(Disturbed(str(folder), how), output_type=pair)
    sums = numbers.key_by(lambda row: row[0]).reduce(lambda first, second: (first[0], first[1] + second[1]))
    sums.filter(lambda row: False).print()
    return env.execute_async(name)


class Job(Protocol):
    """One job that a page shows."""

    @property
    def job_id(self) -> str: ...

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class EndedJob:
    """One that has ended."""

    job_id: str
    name: str


class DisturbedJob:
    """One job whose attempts end when they are told to; REST tells of it."""

    def __init__(self, address: str, job_id: str, name: str, folder: Path) -> None:
        self.job_id = job_id
        self.name = name
        self._address = f"{address}/jobs/{job_id}"
        self._folder = folder
        self._attempt = -1
        #: Checkpoints that were completed before the last attempt was told to end.
        self._completed = 0

    def vertices(self) -> list[str]:
        """Their ids, the sources first."""
        return [str(vertex["id"]) for vertex in ask(self._address)["vertices"]]

    def runs_again(self) -> bool:
        """Whether all tasks run in a later attempt than was told to end, and have completed a checkpoint."""
        return (
            self._all_run()
            and self._present_attempt() > self._attempt
            and self._completed_now() > self._completed
        )

    def end_attempt(self) -> None:
        """Of a job that runs; returns when it does not any more."""
        self._attempt, self._completed = self._present_attempt(), self._completed_now()
        (self._folder / str(self._attempt)).touch()
        until(lambda: not self._all_run(), f"attempt {self._attempt} of the job that {self.name} ends")

    def _all_run(self) -> bool:
        counts = ask(self._address)["status-counts"]
        return bool(counts["RUNNING"] == sum(counts.values()) > 0)

    def _present_attempt(self) -> int:
        """That of the first source's first task, which ends with the others."""
        return int(ask(f"{self._address}/vertices/{self.vertices()[0]}")["subtasks"][0]["attempt"])

    def _completed_now(self) -> int:
        return int(ask(f"{self._address}/checkpoints")["counts"]["completed"])


def until(condition: Callable[[], bool], what: str) -> None:
    """Returns when the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(_LOOK)


@contextmanager
def disturbed_job(cluster: MiniCluster, folder: Path, how: str) -> Iterator[DisturbedJob]:
    """A job that runs and can be disturbed until the block ends; then it is cancelled."""
    files = folder / how.replace(" ", "-")
    files.mkdir()
    env = cluster.get_execution_environment(
        {
            **_TWO,
            "execution.checkpointing.interval": "200 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000000",
            # Long enough for a page to be loaded while it restarts.
            "restart-strategy.fixed-delay.delay": "1 s",
        }
    )
    client = sum_by_key(env, how, files, how)
    try:
        job = DisturbedJob(str(cluster.web_address), str(client.get_job_id()), how, files)
        until(job.runs_again, "the job runs")
        yield job
    finally:
        client.cancel().result(PATIENCE)


def ended_jobs(cluster: MiniCluster) -> list[EndedJob]:
    """A job that has finished, one that has failed and one that was cancelled."""
    env = cluster.get_execution_environment(_TWO)
    env.from_collection(["two words"]).map(lambda text: text).print()
    finished = env.execute_async("has finished")

    env = cluster.get_execution_environment({**_TWO, "restart-strategy.type": "none"})
    env.from_collection(["two words"]).map(lambda text: text[2**62]).print()
    failed = env.execute_async("has failed")

    env = cluster.get_execution_environment(_TWO)
    env.from_collection(["two words"]).map(waits_for_ever).print()
    cancelled = env.execute_async("was cancelled")
    cancelled.cancel().result(PATIENCE)
    return [
        ended_as(JobStatus.FINISHED, "has finished", finished),
        ended_as(JobStatus.FAILED, "has failed", failed),
        ended_as(JobStatus.CANCELED, "was cancelled", cancelled),
    ]


def waits_for_ever(text: str) -> str:
    while True:
        time.sleep(0.01)


def ended_as(status: JobStatus, name: str, client: JobClient) -> EndedJob:
    """Waits for the job's end."""
    until(lambda: status_of(client).is_globally_terminal_state(), f"the job that {name} ends")
    assert status_of(client) is status
    return EndedJob(str(client.get_job_id()), name)


def status_of(client: JobClient) -> JobStatus:
    """What it is now."""
    return client.get_job_status().result(PATIENCE)
