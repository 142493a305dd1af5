"""Programs whose workers can be found, held up and killed from a test."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import ExecutionGraphDetails

#: More rows than any test waits for.
ENDLESS = 10**15


class Traced(MapFunction[int, int]):
    """Notes process and attempt of each subtask in a folder, and lets a row pass now and then.

    Behind `run_fast` all rows pass at once: a test lets the job end when it has done to the job what it wanted.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = str(folder)
        self._name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        self._pause = threading.Event()
        self._fast = str(fast_in(Path(self._folder)))
        number = runtime_context.get_index_of_this_subtask()
        path = Path(self._folder) / f"{self._name}-{number}-{runtime_context.get_attempt_number()}"
        path.write_text(str(os.getpid()))

    def map(self, value: int) -> int:
        if not os.path.exists(self._fast):
            self._pause.wait(0.002)
        return value


def fast_in(folder: Path) -> Path:
    """The file in whose presence rows pass at once."""
    return folder / "fast"


def run_fast(folder: Path) -> None:
    """Lets the rows pass of all Traced functions of that folder."""
    fast_in(folder).touch()


@dataclass(frozen=True)
class Trace:
    """What Traced functions have noted in a folder."""

    folder: Path

    def pid(self, name: str, subtask: int, attempt: int = 0) -> int:
        """Process of an attempt; 0 when it has not begun."""
        path = self.folder / f"{name}-{subtask}-{attempt}"
        return int(path.read_text() or 0) if path.exists() else 0

    def kill(self, name: str, subtask: int, attempt: int = 0) -> None:
        """Kills the worker in which an attempt runs, by SIGKILL."""
        os.kill(self.pid(name, subtask, attempt), signal.SIGKILL)


class KillWhenSeen(threading.Thread):
    """Kills the worker of the first subtask `rows` once the test has `seen` enough; from then on rows run fast."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._trace = Trace(folder)
        self.seen = threading.Event()

    def run(self) -> None:
        wait_until(lambda: self._trace.pid("rows", 0) > 0)
        assert self.seen.wait(DEADLINE)
        self._trace.kill("rows", 0)
        run_fast(self._folder)

    @property
    def struck(self) -> bool:
        """True if the subtask has begun anew."""
        return self._trace.pid("rows", 0, 1) > 0


def environment(
    cluster: MiniCluster, parallelism: int = 1, attempts: int = 100, delay: int = 0
) -> StreamExecutionEnvironment:
    """An environment whose jobs restart after `delay` ms."""
    env = cluster.get_execution_environment().set_parallelism(parallelism)
    return env.set_restart_strategy(RestartStrategies.fixed_delay_restart(attempts, delay))


def endless(env: StreamExecutionEnvironment, folder: Path, name: str, group: str = "default") -> Any:
    """A pipeline that is a region for each of its subtasks but for its source's enumerator."""
    rows = env.from_sequence(1, ENDLESS).slot_sharing_group(group).map(Traced(folder, name)).name(name)
    return rows.slot_sharing_group(group).filter(lambda value: False).slot_sharing_group(group).print()


def attempts(details: ExecutionGraphDetails) -> dict[str, list[int]]:
    """Attempt numbers of the subtasks of each vertex."""
    return {
        vertex.name: [subtask.attempt_number for subtask in vertex.subtasks] for vertex in details.vertices
    }


def all_running(details: ExecutionGraphDetails) -> bool:
    """Whether the job and all its tasks run."""
    return details.status.value == "RUNNING" and all(
        subtask.state is ExecutionState.RUNNING for vertex in details.vertices for subtask in vertex.subtasks
    )


def until_running(client: LocalJobClient) -> None:
    wait_until(lambda: all_running(client.get_job_details().result()))


def until_attempts(client: LocalJobClient, **expected: list[int]) -> None:
    """Returns when all tasks run and the vertices whose names begin so have these attempts."""

    def reached() -> bool:
        details = client.get_job_details().result()
        found = attempts(details)
        return all_running(details) and all(
            numbers == expected[key] for key in expected for name, numbers in found.items() if key in name
        )

    wait_until(reached)


def executor_of(worker: int) -> int:
    """The TaskExecutor process above a worker."""
    return int(psutil.Process(worker).parents()[1].pid)


def two_regions(cluster: MiniCluster, folder: Path) -> tuple[LocalJobClient, Trace]:
    """A job that runs: `left` and `right`, each a region of one subtask in a slot of its own."""
    env = environment(cluster)
    endless(env, folder, "left", "left")
    endless(env, folder, "right", "right")
    client = cluster.submit(env.get_job_graph("two regions"))
    trace = Trace(folder)
    until_running(client)
    wait_until(lambda: trace.pid("left", 0) > 0 and trace.pid("right", 0) > 0)
    return client, trace
