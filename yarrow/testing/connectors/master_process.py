"""MasterProcess: a cluster in a process of its own, so that a plan can kill the master at a point of a checkpoint.

Owner: the test's thread; in the child, its main thread. The child has the master, TaskExecutors are below it. All of
them end with the test's process.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import psutil

from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.testing.connectors.errors import ConnectorCheckError
from yarrow.testing.fault_plan import ArmedByHand, FaultPlan, install

_RUN = "from yarrow.testing.connectors.master_process import main; main()"
#: Seconds for processes below a killed master to end.
_END_SECONDS = 60.0
_CHECKPOINT = re.compile(r"chk-(\d+)")


class MasterOrder(msgspec.Struct, frozen=True):
    """What the child runs: a line of JSON."""

    graph: bytes
    plan: str
    gates: str


class MasterProcess:
    """A job on a cluster that is going to be killed."""

    def __init__(self, graph: JobGraph, plan: FaultPlan, gates: Path, log: Path) -> None:
        """Starts it; `gates` is the folder of the plan."""
        self._log = log
        self._below: set[psutil.Process] = set()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _RUN],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        order = MasterOrder(encode_job_graph(graph), plan.to_json(), str(gates))
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()

    def is_killed(self) -> bool:
        """Whether the plan has killed it. Raises ConnectorCheckError with its log if it has ended by itself."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._below.update(psutil.Process(self._process.pid).children(recursive=True))
        status = self._process.poll()
        if status not in (None, -signal.SIGKILL):
            raise ConnectorCheckError(
                f"the master ended with {status}:\n{self._log.read_text(errors='replace')[-3000:]}"
            )
        return status is not None

    def close(self) -> None:
        """Kills it if it lives, and returns when no process is left of it. Raises as `is_killed`."""
        try:
            self.is_killed()
        finally:
            self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        _ended, alive = psutil.wait_procs(self._below, timeout=_END_SECONDS)
        if alive:
            raise ConnectorCheckError(f"processes outlive their killed master: {alive}")


def newest_checkpoint(folder: Path) -> str | None:
    """The path of the last completed checkpoint below a folder; None if no checkpoint was completed."""
    found = {
        int(match[1]): path.parent
        for path in folder.rglob("_metadata")
        if (match := _CHECKPOINT.fullmatch(path.parent.name))
    }
    return str(found[max(found)]) if found else None


def main() -> None:
    """The child: runs the job of the order until it is killed."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=MasterOrder)
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    with mini_cluster(task_executors=1, slots=2) as cluster:
        install(ArmedByHand(FaultPlan.from_json(order.plan), order.gates))
        cluster.submit(decode_job_graph(order.graph)).get_job_execution_result().result()


def _end_with_the_test() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
