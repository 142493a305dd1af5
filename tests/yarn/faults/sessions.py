"""A session with high availability on a real YARN that several fault tests share, and the job that they watch in it."""

from __future__ import annotations

import contextlib
import os
import signal
import urllib.error
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.yarn.commands import Commands
from tests.yarn.highly_available import ClusterNodes, high_availability, stored_files, zookeeper_client
from tests.yarn.rest import ask, client_secrets
from tests.yarn.waiting import GRACE, until
from tests.yarn.watched_jobs import ENDED, RESTARTS, Cluster, WatchedJob
from yarrow.cli.errors import CommandError
from yarrow.runtime.fs.file_system import file_system_for
from yarrow.runtime.ha.services import REST_SERVER
from yarrow.testing.hadoop.cluster import HadoopCluster
from yarrow.testing.hadoop.containers import ContainerProcess
from yarrow.testing.steady_rows import SteadyOutput

#: Of ZooKeeper, in seconds: what a new leader waits for at most.
SESSION_TIMEOUT = 6.0
MASTER = "-m yarrow.am.application_master"
SKEIN_MASTER = "com.anaconda.skein.ApplicationMaster"
TASK_EXECUTOR = "-m yarrow.container.yarn_task_executor"
ROOT = "/yarrow-faults"
#: The tests that share a session end its master nine times in all.
ATTEMPTS = "15"
#: A module of the user's that workers load: whichever master leads, it must have what the client has shipped.
MODULE, MODULE_FILE = "def key_of(row):\n    return row[0]\n", "shipped_key.py"
PROGRAM = (
    "import sys\nfrom shipped_key import key_of\nfrom yarrow.testing.steady_rows import main\n"
    "main(*sys.argv[1:], key=key_of)\n"
)


def steady(checkpoints: str) -> dict[str, str]:
    """Settings of the steady job."""
    return {
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.timeout": "20 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "execution.checkpointing.dir": checkpoints,
        **RESTARTS,
    }


class FaultSession:
    """Started by `yarrow session -d`; REST is asked at whatever address ZooKeeper names."""

    def __init__(
        self, hadoop: HadoopCluster, folder: Path, storage: str, name: str, quorum: str = "", **settings: str
    ) -> None:
        self.hadoop, self.folder, self.storage = hadoop, folder, storage
        self.commands = Commands(
            hadoop,
            folder,
            {
                **high_availability(
                    quorum or hadoop.zookeeper_quorum, ROOT, f"{storage}/ha", f"{SESSION_TIMEOUT:g} s"
                ),
                "yarn.application-attempts": ATTEMPTS,
                "taskmanager.numberOfTaskSlots": "2",
                "taskmanager.memory.process.size": "1024m",
                "parallelism.default": "2",
                "heartbeat.interval": "1 s",
                "heartbeat.timeout": "8 s",
                **steady(f"{storage}/checkpoints"),
                # Shorter than the timeout of checkpoints, so that they say what was in the way.
                "fs.webhdfs.retry-timeout": "2 s",
                "slot.request.timeout": "120 s",
                "taskmanager.registration.timeout": "60 s",
                "resourcemanager.taskmanager-timeout": "5 s",
                **settings,
            },
        )
        (folder / "steady.py").write_text(PROGRAM)
        (folder / MODULE_FILE).write_text(MODULE)
        self._jobs = 0
        #: What `left_of_jobs` has found after a test that failed for it.
        self.known_left: set[str] = set()
        with ExitStack() as left:
            client = left.enter_context(zookeeper_client(hadoop.zookeeper_quorum))
            self.application = self.commands.ok("session", "-d", "-nm", Commands.name(name)).application
            self._left = left.pop_all()
        self.nodes = ClusterNodes(client, f"{ROOT}/{self.application}")
        self._token = client_secrets(folder / "files", self.application).rest_token

    def stop(self) -> None:
        """Ends it as its user does, and checks that nothing of high availability stays."""
        with self._left:
            try:
                if not self.has_ended():
                    self.commands.ok("session", "-id", self.application, text="stop\n")
                until(self.has_ended, GRACE, f"{self.application} has ended")
            finally:
                if not self.has_ended():
                    self.hadoop.kill_application(self.application)
        self.commands.assert_nothing_left()

    def left_of_jobs(self) -> list[str]:
        """While no job runs: what is stored of one, and processes of containers that YARN does not have any more."""
        left = [f"node {path}" for path in self.znodes()] + stored_files(
            f"{self.storage}/ha/{self.application}"
        )
        with contextlib.suppress(FileNotFoundError):
            checkpoints = f"{self.storage}/checkpoints"
            left += [entry.path for entry in file_system_for(checkpoints).list(checkpoints)]
        living = {one["id"] for one in self.hadoop.containers(self.application)}
        orphans = [
            one for one in self.hadoop.container_processes(self.application) if one.container not in living
        ]
        return left + [f"{one.pid} of {one.container}: {one.command}" for one in orphans]

    def has_ended(self) -> bool:
        return self.commands.state(self.application) in ("FINISHED", "FAILED", "KILLED")

    # What clients see.

    def ask(self, method: str, path: str, seconds: float = 10.0) -> Any:
        """The leader's answer; OSError where there is none."""
        return ask(self.nodes.leader_address(REST_SERVER), self._token, path, method, seconds)

    def get(self, path: str) -> Any:
        """The leader's answer; None while nobody leads, or it does not know what is asked for."""
        try:
            return self.ask("GET", path)
        except urllib.error.HTTPError as error:
            assert error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE), error.read()
            return None
        except (OSError, ValueError):
            return None

    def epoch(self) -> int:
        """The one that has begun last."""
        return self.nodes.epoch()

    def znodes(self) -> list[str]:
        """Those that hold something of jobs."""
        return self.nodes.of_jobs()

    def pointers(self, job_id: str) -> dict[int, str]:
        """Paths of the job's completed checkpoints as ZooKeeper has them, by their ids."""
        return self.nodes.pointers(job_id)

    def said(self, text: str) -> int:
        """How often the logs of masters hold a text."""
        logs = self.hadoop.container_logs(self.application, 10_000_000)
        return sum(log.count(text) for name, log in logs.items() if name.endswith("/jobmanager.log"))

    # What runs in its containers.

    def processes(self, mark: str) -> list[ContainerProcess]:
        """Those whose command has the mark, shells apart; the oldest first."""
        found = [
            one
            for one in self.hadoop.container_processes(self.application)
            if mark in one.command and not one.command.startswith(("/bin/bash", "bash", "/bin/sh", "sh "))
        ]
        return sorted(found, key=lambda one: one.record.started)

    def master(self) -> ContainerProcess:
        """Our process of the present attempt."""
        until(lambda: bool(self.processes(MASTER)), GRACE, "a master process")
        return self.processes(MASTER)[-1]

    def task_executors(self) -> list[ContainerProcess]:
        return self.processes(TASK_EXECUTOR)

    def node_of(self, container: str) -> str:
        """The daemon of the node that a container runs on."""
        (entry,) = [one for one in self.hadoop.containers(self.application) if one["id"] == container]
        port = int(entry["nodeId"].rpartition(":")[2])
        (name,) = [
            name for name in ("nodemanager1", "nodemanager2") if self.hadoop.ports[f"{name}.rpc"] == port
        ]
        return name

    def attempts(self) -> int:
        return len(self.hadoop.attempts(self.application))

    def submit(self, settings: Mapping[str, str] = MappingProxyType({}), *, local: bool = False) -> SteadyJob:
        """The steady job; it ends when it is let go. Its output goes to HDFS, or to files of this machine."""
        self._jobs += 1
        folder = self.folder / f"job-{self._jobs}"
        folder.mkdir()
        output = str(folder / "output") if local else f"{self.storage}/output-{self._jobs}"
        dynamic = [f"-D{key}={value}" for key, value in settings.items()]
        arguments = (*dynamic, "-pyfs", MODULE_FILE, "steady.py", str(folder), output)
        outcome = self.commands.ok("run", "-d", "-yid", self.application, *arguments)
        return SteadyJob(self, outcome.job, folder, output)


class SteadyJob(WatchedJob):
    """The job of `yarrow.testing.steady_rows`."""

    def __init__(self, cluster: Cluster, job_id: str, folder: Path, output: str) -> None:
        super().__init__(cluster, job_id)
        self._folder, self._output = folder, output

    def finish(self) -> None:
        """Lets it go to its end, and holds its output against that without faults."""
        (self._folder / "go").touch()
        until(lambda: self.state() in ENDED, GRACE, f"job {self.job_id} ends")
        assert self.state() == "FINISHED", self.get("/exceptions")
        SteadyOutput(self._output).check()

    def cancel_again(self) -> None:
        """Cancels; it may be over, or forgotten."""
        try:
            self.cancel()
        except urllib.error.HTTPError as error:
            assert error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), error.read()

    def end(self) -> None:
        """Cancels it until it has ended, whoever leads meanwhile; a master that came after its end may not know it."""

        def has_ended() -> bool:
            state = self.state()
            if state in ENDED or (state == "" and self.cluster.get("/overview") is not None):
                return True
            with contextlib.suppress(OSError, CommandError):
                self.cancel()
            return False

        until(has_ended, GRACE, "the job is cancelled")


def kill(process: ContainerProcess, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process of a container."""
    os.kill(process.pid, number)
