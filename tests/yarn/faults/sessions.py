"""A session with high availability on a real YARN that several fault tests share, and the job that they watch in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import urllib.error
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from tests import support
from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.containers import ContainerProcess
from tests.support.kept_state import kept_splits, kept_state
from tests.support.process_names import name_of
from tests.support.restored_state import found_splits, found_state
from tests.support.steady_rows import APART, NUMBERED, SteadyOutput, reader_names
from tests.yarn.commands import Commands
from tests.yarn.highly_available import ClusterNodes, high_availability, stored_files, zookeeper_client
from tests.yarn.rest import ask, client_secrets
from tests.yarn.waiting import GRACE, until
from tests.yarn.watched_jobs import ENDED, RESTARTS, Cluster, WatchedJob
from yarrow.client.errors import CommandError
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.ha.services import REST_SERVER
from yarrow.runtime.yarn.layout import RESOURCE_ID

#: Of ZooKeeper, in seconds: what a new leader waits for at most. A pause of a busy machine ends no session.
SESSION_TIMEOUT = 10.0
#: Settings in place of those with room for pauses: whoever falls silent is replaced at once.
IMPATIENT = {"high-availability.zookeeper.client.session-timeout": "6 s", "heartbeat.timeout": "8 s"}
MASTER = "-m yarrow.am.yarn.application_master"
SKEIN_MASTER = "com.anaconda.skein.ApplicationMaster"
TASK_EXECUTOR = "-m yarrow.container.process.yarn_task_executor"
#: Of the steady job.
TASK_EXECUTORS = 2
ROOT = "/yarrow-faults"
#: The tests that share a session end its master nine times in all.
ATTEMPTS = "15"
#: A module of the user's that workers load: whichever master leads, it must have what the client has shipped.
MODULE, MODULE_FILE = "def key_of(row):\n    return row[0]\n", "shipped_key.py"
#: The steady job's own modules, shipped in a folder: containers know nothing of this checkout.
JOB_MODULES, JOB_FOLDER = ("steady_rows", "restored_state"), "modules"
PROGRAM = (
    "import sys\nfrom shipped_key import key_of\nfrom tests.support.steady_rows import main\n"
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


def _copy_job_modules(folder: Path) -> None:
    """Makes the package `tests.support` below `folder`, of the job's modules alone."""
    package = folder / "tests" / "support"
    package.mkdir(parents=True)
    for made in (package.parent, package):
        (made / "__init__.py").touch()
    for name in JOB_MODULES:
        shutil.copy(Path(support.__path__[0], f"{name}.py"), package)


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
                # Two containers, which count as two hosts: the exchange runs over TCP with TLS.
                "taskmanager.numberOfTaskSlots": "1",
                "taskmanager.data.transport": "container",
                "taskmanager.memory.process.size": "1024m",
                "parallelism.default": "2",
                "heartbeat.interval": "1 s",
                "heartbeat.timeout": "15 s",
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
        _copy_job_modules(folder / JOB_FOLDER)
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

    def ask(self, method: str, path: str, seconds: float = 30.0) -> Any:
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

    def two_task_executors(self) -> list[ContainerProcess]:
        """Those of the steady job, the older one first; a former job's have gone, or serve this one."""
        until(lambda: len(self.task_executors()) == TASK_EXECUTORS, GRACE, "two TaskExecutors")
        return self.task_executors()

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
        arguments = (*dynamic, "-pyfs", f"{MODULE_FILE},{JOB_FOLDER}", "steady.py", str(folder), output)
        outcome = self.commands.ok("run", "-d", "-yid", self.application, *arguments)
        return SteadyJob(self, outcome.job, folder, output)


class Survivor:
    """A TaskExecutor of the steady job that a fault must leave alone, with its worker and its own subtasks."""

    def __init__(self, session: FaultSession, job: SteadyJob, executor: ContainerProcess) -> None:
        self._session, self._job, self._executor = session, job, executor
        self._workers = slot_workers(executor)
        assert self._workers
        apart = job.subtasks(APART)
        self._apart = self._own(apart)
        assert self._apart and len(self._apart) < len(apart)

    def check(self) -> None:
        """It is the same process with the same worker, and what has no exchange did not restart there."""
        assert self._executor.pid in [one.pid for one in self._session.task_executors()]
        assert slot_workers(self._executor) == self._workers
        if self.has_enumerator:
            # All readers restart with the enumerator of their source.
            assert self._own(self._job.subtasks(APART)) == self._apart, "what has no exchange did not restart"

    @property
    def has_enumerator(self) -> bool:
        """Whether the splits of the pipeline without an exchange are dealt out here: beside its first subtask."""
        return 0 in self._apart

    def _own(self, subtasks: list[dict[str, Any]]) -> dict[int, int]:
        """Attempts by subtask."""
        own = resource_id(self._executor)
        return {one["subtask"]: one["attempt"] for one in subtasks if one["taskmanager-id"] == own}


def victim_and_survivor(session: FaultSession, job: SteadyJob) -> tuple[ContainerProcess, Survivor]:
    """Of the two TaskExecutors, the survivor is the one with the enumerator of the pipeline without an exchange."""
    first, second = session.two_task_executors()
    survivor = Survivor(session, job, second)
    return (first, survivor) if survivor.has_enumerator else (second, Survivor(session, job, first))


def slot_workers(executor: ContainerProcess) -> list[int]:
    """Processes of a TaskExecutor's slots."""
    found = psutil.Process(executor.pid).children(recursive=True)
    return sorted(one.pid for one in found if name_of(one).startswith("yarrow-slot"))


def resource_id(executor: ContainerProcess) -> str:
    """Its name in REST."""
    variables = Path(f"/proc/{executor.pid}/environ").read_text(errors="replace").split("\0")
    (found,) = [one.partition("=")[2] for one in variables if one.startswith(f"{RESOURCE_ID}=")]
    return found


def exchanges_by_tls(first: ContainerProcess, second: ContainerProcess) -> bool:
    """Whether workers of the two have a TCP connection between them, and who listens there speaks TLS."""
    ends, others = _connections(first), _connections(second)
    between = [end for here, there in ends if (there, here) in others for end in (here, there)]
    return any(_speaks_tls(tuple(end)) for end in between)


def _connections(executor: ContainerProcess) -> set[tuple[Any, Any]]:
    found = [one for pid in slot_workers(executor) for one in psutil.Process(pid).net_connections("tcp")]
    return {(one.laddr, one.raddr) for one in found if one.status == psutil.CONN_ESTABLISHED}


def _speaks_tls(address: tuple[str, int]) -> bool:
    """Of the two ends of a connection only one listens."""
    try:
        return "BEGIN CERTIFICATE" in ssl.get_server_certificate(address, timeout=GRACE)
    except OSError:
        return False


class SteadyJob(WatchedJob):
    """The job of `tests.support.steady_rows`."""

    def __init__(self, cluster: Cluster, job_id: str, folder: Path, output: str) -> None:
        super().__init__(cluster, job_id)
        self._folder, self._output = folder, output

    def finish(self) -> None:
        """Lets it go to its end, and holds its output against that without faults."""
        (self._folder / "go").touch()
        until(lambda: self.state() in ENDED, GRACE, f"job {self.job_id} ends")
        assert self.state() == "FINISHED", self.get("/exceptions")
        SteadyOutput(self._output).check()

    def found_what_was_kept(self) -> None:
        """The tasks found the state of each key and the position of each split that their checkpoint has.

        For a job that was restored, runs, and retains that checkpoint.
        """
        subtasks = len(self.subtasks(NUMBERED))

        def found_it() -> bool:
            restored = self.get("/checkpoints")["latest"]["restored"]
            counts, splits = kept_state(restored["external_path"]), kept_splits(restored["external_path"])
            found = found_state(self._folder, subtasks)
            positions = found_splits(self._folder, reader_names(subtasks))
            if self.restored_from() != restored["id"] or not found.keys() >= counts.keys():
                # It was restored once more, or has not seen each key yet.
                return False
            assert counts and splits, "a checkpoint of a job that reads and counts"
            assert {key: state for key, state in found.items() if state is not None} == counts
            assert positions == splits
            return True

        until(found_it, GRACE, "the tasks see each key of the checkpoint that they were restored from")

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
