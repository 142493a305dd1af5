"""A session with high availability on a real YARN that several fault tests share, and the job that they watch in it."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from tests.yarn.commands import Commands
from tests.yarn.private_zookeeper import until
from yarrow.runtime.ha.services import REST_SERVER
from yarrow.runtime.ha.zookeeper_election import LEADER_FOLDER, leader_node
from yarrow.runtime.ha.zookeeper_records import EPOCH_NODE
from yarrow.runtime.ha.zookeeper_retrieval import decode_leader
from yarrow.testing.hadoop.cluster import HadoopCluster
from yarrow.testing.hadoop.containers import ContainerProcess
from yarrow.testing.steady_rows import SteadyOutput

#: Seconds in which what a fault has disturbed is as it was; a machine under load is slow.
GRACE = 120.0
#: Of ZooKeeper, in seconds: what a new leader waits for at most.
SESSION_TIMEOUT = 6.0
MASTER = "-m yarrow.am.application_master"
SKEIN_MASTER = "com.anaconda.skein.ApplicationMaster"
TASK_EXECUTOR = "-m yarrow.container.yarn_task_executor"
ROOT = "/yarrow-faults"
ENDED = ("FINISHED", "CANCELED", "FAILED")
PROGRAM = "import sys\nfrom yarrow.testing.steady_rows import main\nmain(*sys.argv[1:])\n"


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
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": quorum or hadoop.zookeeper_quorum,
                "high-availability.zookeeper.path.root": ROOT,
                "high-availability.storageDir": f"{storage}/ha",
                "high-availability.zookeeper.client.session-timeout": f"{SESSION_TIMEOUT:g} s",
                "high-availability.zookeeper.client.retry-wait": "1 s",
                "yarn.application-attempts": "5",
                "taskmanager.numberOfTaskSlots": "2",
                "taskmanager.memory.process.size": "1024m",
                "parallelism.default": "2",
                "heartbeat.interval": "1 s",
                "heartbeat.timeout": "8 s",
                "execution.checkpointing.interval": "1 s",
                "execution.checkpointing.timeout": "20 s",
                "execution.checkpointing.tolerable-failed-checkpoints": "1000",
                "execution.checkpointing.dir": f"{storage}/checkpoints",
                # Shorter than the timeout of checkpoints, so that they say what was in the way.
                "fs.webhdfs.retry-timeout": "2 s",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "200 ms",
                "slot.request.timeout": "120 s",
                "taskmanager.registration.timeout": "60 s",
                "resourcemanager.taskmanager-timeout": "5 s",
                **settings,
            },
        )
        (folder / "steady.py").write_text(PROGRAM)
        self._jobs = 0
        patience = KazooRetry(max_tries=-1, max_delay=1.0, deadline=GRACE)
        self._zookeeper = KazooClient(hadoop.zookeeper_quorum, timeout=60.0, command_retry=patience)
        self._zookeeper.start(GRACE)
        try:
            self.application = self.commands.ok("session", "-d", "-nm", Commands.name(name)).application
        except BaseException:
            self._close_client()
            raise
        (secrets,) = (folder / "files").rglob(f"*{self.application}*")
        self._token = str(json.loads(secrets.read_bytes())["rest_token"])
        self.root = f"{ROOT}/{self.application}"

    def stop(self) -> None:
        """Ends it as its user does, and checks that nothing of high availability stays."""
        try:
            if not self.has_ended():
                self.commands.ok("session", "-id", self.application, text="stop\n")
            until(self.has_ended, GRACE, f"{self.application} has ended")
        finally:
            try:
                if not self.has_ended():
                    self.hadoop.kill_application(self.application)
            finally:
                self._close_client()

    def forget(self) -> None:
        """Removes what an application has kept that has failed."""
        self._zookeeper.delete(self.root, recursive=True)

    def has_ended(self) -> bool:
        return self.commands.state(self.application) in ("FINISHED", "FAILED", "KILLED")

    # What clients see.

    def ask(self, method: str, path: str, seconds: float = 10.0) -> Any:
        """The leader's answer; OSError where there is none."""
        request = urllib.request.Request(f"{self._address()}{path}", method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.loads(answer.read() or b"{}")

    def get(self, path: str) -> Any:
        """The leader's answer; None while nobody leads, or it does not know what is asked for."""
        try:
            return self.ask("GET", path)
        except urllib.error.HTTPError as error:
            assert error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE), error.read()
            return None
        except (OSError, ValueError):
            return None

    def _address(self) -> str:
        leader = decode_leader(self._node(leader_node(REST_SERVER)))
        if leader is None:
            raise OSError("nobody leads")
        return leader.address

    def epoch(self) -> int:
        """The one that has begun last."""
        return int(self._node(EPOCH_NODE) or 0)

    def znodes(self) -> list[str]:
        """Those that hold something of jobs."""
        found = []
        for part in ("jobs", "results", "checkpoints"):
            try:
                found += [
                    f"{part}/{name}"
                    for name in self._zookeeper.retry(self._zookeeper.get_children, f"{self.root}/{part}")
                    or []
                ]
            except NoNodeError:
                continue
        return found

    def pointers(self, job_id: str) -> dict[int, str]:
        """Paths of the job's completed checkpoints as ZooKeeper has them, by their ids."""
        folder = f"checkpoints/{job_id}/pointers"
        try:
            names = self._zookeeper.retry(self._zookeeper.get_children, f"{self.root}/{folder}")
        except NoNodeError:
            return {}
        found = {int(name): self._node(f"{folder}/{name}") for name in names}
        return {number: json.loads(data)["path"] for number, data in found.items() if data}

    def candidates(self) -> list[str]:
        """Who stands for election, or leads."""
        return sorted(
            self._zookeeper.retry(self._zookeeper.get_children, f"{self.root}/{LEADER_FOLDER}/candidates")
        )

    def said(self, text: str) -> int:
        """How often the logs of masters hold a text."""
        logs = self.hadoop.container_logs(self.application, 10_000_000)
        return sum(log.count(text) for name, log in logs.items() if name.endswith("/jobmanager.log"))

    def _node(self, path: str) -> bytes | None:
        try:
            data: bytes | None = self._zookeeper.retry(self._zookeeper.get, f"{self.root}/{path}")[0]
        except NoNodeError:
            return None
        return data

    def _close_client(self) -> None:
        self._zookeeper.stop()
        self._zookeeper.close()

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
        outcome = self.commands.ok(
            "run", "-d", "-yid", self.application, *dynamic, "steady.py", str(folder), output
        )
        return SteadyJob(self, outcome.job, folder, output)


class SteadyJob:
    """The job of `yarrow.testing.steady_rows` in a session."""

    def __init__(self, session: FaultSession, job_id: str, folder: Path, output: str) -> None:
        self.session, self.job_id = session, job_id
        self._folder, self._output = folder, output

    def get(self, below: str = "") -> Any:
        return self.session.get(f"/jobs/{self.job_id}{below}")

    def state(self) -> str:
        """ "" while nobody can say."""
        return str((self.get() or {}).get("state", ""))

    def runs(self) -> bool:
        """Whether the master that leads sees all its tasks running."""
        job = self.get() or {}
        tasks: Mapping[str, int] = job.get("status-counts", {})
        return job.get("state") == "RUNNING" and tasks.get("RUNNING") == sum(tasks.values()) > 0

    def checkpoints(self) -> dict[str, Any]:
        """Statistics since the present master leads."""
        return dict(self.get("/checkpoints") or {"counts": {"completed": 0, "restored": 0, "failed": 0}})

    def completed(self) -> int:
        return int(self.checkpoints()["counts"]["completed"])

    def last_checkpoint(self) -> int:
        """Id of the last completed one, 0 before."""
        latest = self.checkpoints().get("latest") or {}
        return int((latest.get("completed") or {"id": 0})["id"])

    def restored_from(self) -> int:
        """Id of the checkpoint that it was restored from last, 0 when it never was."""
        latest = self.checkpoints().get("latest") or {}
        return int((latest.get("restored") or {"id": 0})["id"])

    def attempts(self) -> int:
        """Sum of the attempts of all its subtasks: it rises with each restart."""
        vertices = [vertex["id"] for vertex in (self.get() or {}).get("vertices", [])]
        found = [self.get(f"/vertices/{vertex}") or {} for vertex in vertices]
        return sum(int(one["attempt"]) for vertex in found for one in vertex.get("subtasks", []))

    def until_running(self, seconds: float = GRACE) -> None:
        until(self.runs, seconds, f"job {self.job_id} runs")

    def until_checkpoints(self, more: int = 2, seconds: float = GRACE) -> None:
        """So many more are completed under the present master."""
        last = self.last_checkpoint()
        until(lambda: self.last_checkpoint() >= last + more, seconds, f"{more} checkpoints of {self.job_id}")

    def until_disturbed_and_back(self, disturb: Callable[[], None], seconds: float = GRACE) -> None:
        """Does what restarts the tasks, and returns when they run again, restored from a checkpoint."""
        attempts, last = self.attempts(), self.last_checkpoint()
        disturb()
        until(
            lambda: self.runs() and (self.attempts() > attempts or self.restored_from() >= last),
            seconds,
            f"job {self.job_id} runs again",
        )
        assert self.restored_from() >= last, "it went on from its last checkpoint"

    def finish(self) -> None:
        """Lets it go to its end, and holds its output against that without faults."""
        (self._folder / "go").touch()
        until(lambda: self.state() in ENDED, GRACE, f"job {self.job_id} ends")
        assert self.state() == "FINISHED", self.get("/exceptions")
        SteadyOutput(self._output).check()

    def cancel(self) -> None:
        self.session.ask("PATCH", f"/jobs/{self.job_id}?mode=cancel")

    def cancel_again(self) -> None:
        """The same; it may be over, or forgotten."""
        try:
            self.cancel()
        except urllib.error.HTTPError as error:
            assert error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), error.read()


def kill(process: ContainerProcess, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process of a container."""
    os.kill(process.pid, number)
