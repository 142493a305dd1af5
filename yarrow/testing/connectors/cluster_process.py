"""ClusterProcess: a master or a TaskExecutor of a standalone cluster, with a plan of faults, for one trial.

Owner: the test's thread; in the child, its main thread. The child ends with the test's process, and its own children
end with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from yarrow.runtime.config.settings import Settings
from yarrow.standalone.standalone import run_job_manager, run_task_manager
from yarrow.testing.connectors.errors import ConnectorCheckError
from yarrow.testing.fault_plan import ArmedByHand, FaultPlan, install

_RUN = "from yarrow.testing.connectors.cluster_process import main; main()"
#: Seconds for all that is below a killed process to end.
_END_SECONDS = 60.0

Role = Literal["jobmanager", "taskmanager"]


class _Order(msgspec.Struct, frozen=True):
    """What the child runs: a line of JSON."""

    role: Role
    configuration: dict[str, str]
    #: A FaultPlan of the child itself; "" = none.
    plan: str
    gates: str


class ClusterProcess:
    """One process of the cluster."""

    def __init__(
        self,
        role: Role,
        configuration: Mapping[str, str],
        log: Path,
        plan: FaultPlan | None = None,
        gates: Path | None = None,
    ) -> None:
        """Starts it; `gates` is the folder of the plan."""
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _RUN],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        order = _Order(role, dict(configuration), plan.to_json() if plan else "", str(gates or ""))
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def pids(self) -> set[int]:
        """Process ids of it and of all below it."""
        return {self.pid} | {process.pid for process in self._below()}

    def _below(self) -> list[psutil.Process]:
        try:
            below: list[psutil.Process] = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return below

    def is_killed(self) -> bool:
        """Whether it was killed. Raises ConnectorCheckError with its log if it has ended by itself."""
        status = self._process.poll()
        if status not in (None, -signal.SIGKILL):
            raise ConnectorCheckError(
                f"a process of the cluster ended with {status}:\n{self._log.read_text(errors='replace')[-3000:]}"
            )
        return status is not None

    def close(self) -> None:
        """Kills it, and returns when nothing is left of it. Raises ConnectorCheckError if something is."""
        below = self._below()
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        _ended, alive = psutil.wait_procs(below, timeout=_END_SECONDS)
        if alive:
            raise ConnectorCheckError(f"processes outlive their killed cluster: {alive}")


def main() -> None:
    """The child: a master or a TaskExecutor, until it is killed."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Order)
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    if order.plan:
        install(ArmedByHand(FaultPlan.from_json(order.plan), order.gates))
    run = run_job_manager if order.role == "jobmanager" else run_task_manager
    sys.exit(run(Settings(order.configuration, "the kit of connectors")))


def _end_with_the_test() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
