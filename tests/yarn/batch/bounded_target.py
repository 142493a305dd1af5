"""What the nemesis can do to a bounded job whose tasks run in executors on YARN.

Owner: the test's thread. Each task tells its process in a file when it begins, so a fault hits a task of a named stage.
A file also stands for a checkpoint of the nemesis: between two hits a task has begun.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.nemesis import Kind
from tests.support.services.errors import ServiceError
from tests.yarn.batch.bounded_jobs import MASTER, Application, Output
from tests.yarn.faults.nemesis_targets import SAFE_MODE, Hadoop, nothing
from tests.yarn.highly_available import ClusterNodes
from tests.yarn.rest import ask, client_secrets
from tests.yarn.waiting import GRACE, until
from yarrow.runtime.ha.services import REST_SERVER

Heal = Callable[[], None]
STAGES = ("map", "sink")
EXECUTOR = "YarnCoarseGrainedExecutorBackend"
DRIVER_AT_START, DRIVER, KILL_MASTER = "kill the driver at its start", "kill the driver", "kill the leader"
SPARK = "Spark's application is killed"
#: Sums by key into a folder. Each task tells its stage and process; the stage that writes waits for a file.
WATCHED_SUMS = """
import os, sys, time
from yarrow.datastream import MapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

folder, gate = sys.argv[1:]

class Telling(MapFunction):
    def __init__(self, stage):
        self.stage = stage
    def open(self, context):
        os.makedirs(f"{gate}.tasks", exist_ok=True)
        name = f"{self.stage}-{os.getpid()}-{time.monotonic_ns()}"
        open(f"{gate}.tasks/{name}", "w").close()
    def map(self, row):
        if self.stage == "map":
            time.sleep(0.005)
        elif row[0] == 6:
            while not os.path.exists(gate):
                time.sleep(0.05)
        return row

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
rows = env.from_sequence(1, 1000).map(lambda number: (number % 7, number)).map(Telling("map"))
sums = rows.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
sums.map(Telling("sink")).sink_to(TransactionalFiles(folder))
env.execute("watched sums")
"""


class BoundedTarget:
    """A highly available session, and a job of WATCHED_SUMS."""

    def __init__(self, application: Application, output: Output, nodes: ClusterNodes) -> None:
        """Submits the job; `nodes` name the leader, who changes."""
        self._application, self._output, self._nodes = application, output, nodes
        self._token = client_secrets(application.yarrow.folder / "files", application.id).rest_token
        self._hadoop = Hadoop(application.yarrow.hadoop)
        self._tasks = Path(f"{output.gate}.tasks")
        arguments = ("watched_sums.py", *output.arguments)
        self.id = application.yarrow.ok("run", "-d", "-yid", application.id, *arguments).job

    def kinds(self) -> Sequence[Kind]:
        workers = [Kind(f"kill a Python worker: {stage}", weight=2) for stage in STAGES]
        executors = [Kind(f"kill an executor: {stage}", weight=2) for stage in STAGES]
        # Each master takes an attempt of the application.
        drivers = (Kind(DRIVER_AT_START), Kind(DRIVER), Kind(KILL_MASTER, limit=1), Kind(SPARK))
        return (*workers, *executors, *drivers, Kind(SAFE_MODE, lasts=True))

    def begin(self, kind: str) -> Heal | None:
        what, _, stage = kind.partition(": ")
        match what:
            case "kill a Python worker":
                return _kill([task.pid for task in self._living(stage)[-1:]])
            case "kill an executor":
                return _kill([_executor_of(task) for task in self._living(stage)[-1:]])
            case "kill the driver at its start":
                return self._kill_starting_driver()
            case "kill the driver":
                return _kill(self._application.drivers() if self._living() else [])
            case "kill the leader":
                return _kill(self._application.processes(MASTER)[-1:])
            case "Spark's application is killed":
                return self._kill_spark()
        return self._hadoop.begin(kind)

    def last_checkpoint(self) -> int:
        return len(list(self._tasks.iterdir())) if self._tasks.exists() else 0

    def heal_all(self) -> None:
        self._hadoop.heal_all()

    def runs(self) -> bool:
        status = self._status()
        assert status not in ("FAILED", "FINISHED"), f"the job has ended: {status}, {self._failures()}"
        return status == "RUNNING" and bool(self._living("sink"))

    def finish(self) -> None:
        self._output.open_gate()
        until(lambda: self._status() == "FINISHED", GRACE, "the job finishes")
        self._output.assert_exact()
        self._until_nothing_runs()

    def cancel(self) -> None:
        self._application.yarrow.ok("cancel", "-yid", self._application.id, self.id)
        until(lambda: self._status() == "CANCELED", GRACE, "the job is cancelled")
        self._until_nothing_runs()
        assert not [file for file in self._output.folder.rglob("*") if file.is_file()]

    def disturb_after_cancel(self) -> None:
        epoch = self._nodes.epoch()
        for pid in self._application.processes(MASTER):
            os.kill(pid, signal.SIGKILL)
        # The next master does not know the job if the former one had removed all of its stored data.
        until(lambda: self._nodes.epoch() > epoch and self._answers(), GRACE, "another attempt leads")

    def _until_nothing_runs(self) -> None:
        self._application.until_driver_is_gone()
        until(lambda: not self._living() and not self._spark(), GRACE, "nothing of Spark is left")

    def _status(self) -> str:
        """What a master says; "" while none answers."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(self._ask(f"/jobs/{self.id}")["state"])
        return ""

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return bool(self._ask("/overview"))
        return False

    def _ask(self, path: str) -> Any:
        """The leader's answer; OSError while nobody leads."""
        return ask(self._nodes.leader_address(REST_SERVER), self._token, path)

    def _failures(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return str(self._ask(f"/jobs/{self.id}/exceptions"))
        return ""

    def _living(self, stage: str = "") -> list[psutil.Process]:
        """Python workers that have begun a task and live, the latest last."""
        if not self._tasks.exists():
            return []
        found = []
        for file in sorted(self._tasks.iterdir(), key=lambda file: int(file.name.rpartition("-")[2])):
            of_stage, pid, _ = file.name.split("-")
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(int(pid))
                if of_stage.startswith(stage) and process.name() == "yarrow-batch":
                    found.append(process)
        return found

    def _spark(self) -> list[str]:
        """Applications of Spark that live and are of our session."""
        found = self._application.yarrow.hadoop.applications(("NEW", "SUBMITTED", "ACCEPTED", "RUNNING"))
        return [
            str(one["id"])
            for one in found
            if one["applicationType"] == "SPARK" and self._application.id in str(one["applicationTags"])
        ]

    def _kill_starting_driver(self) -> Heal | None:
        """Kills the driver, and the next one as soon as its process is there: long before it has a session."""
        former = self._application.drivers() if self._living() else []
        if _kill(former) is None:
            return None
        until(lambda: not {*self._application.drivers()} <= {*former}, GRACE, "the next driver starts")
        return _kill([pid for pid in self._application.drivers() if pid not in former])

    def _kill_spark(self) -> Heal | None:
        for one in self._spark() if self._living() else []:
            with contextlib.suppress(ServiceError):
                self._application.yarrow.hadoop.kill_application(one)
                return nothing
        return None


def _executor_of(worker: psutil.Process) -> int:
    """The Java above a Python worker; 0 = it has ended meanwhile."""
    with contextlib.suppress(psutil.Error):
        for process in worker.parents():
            if EXECUTOR in " ".join(process.cmdline()):
                return int(process.pid)
    return 0


def _kill(pids: Sequence[int]) -> Heal | None:
    """Kills those that live; None = there is nobody."""
    hit = False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)
                hit = True
    return nothing if hit else None
