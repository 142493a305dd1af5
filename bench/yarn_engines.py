"""The two engines that bench/yarn times on one YARN: their commands, and what they say by REST, which is the same API.

Owner: the main thread; everything blocks. An engine's session is ended by its own command and, failing that, by YARN.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from bench.case import PEER_PYTHON, PROGRAMS, ROOT
from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.containers import ContainerProcess
from tests.support.services.ports import free_ports

T = TypeVar("T")
#: As REST shows it.
Subtask = dict[str, Any]

_APPLICATION = re.compile(r"application_\d+_\d+")
_WEB = re.compile(r"JobManager Web Interface: (http://\S+)")
_JOB = re.compile(r"JobID ([0-9a-f]{32})")
#: Seconds after which a command or a condition counts as failed.
LIMIT = 180.0
#: Both get containers of the same size.
MASTER_MEMORY, TASK_EXECUTOR_MEMORY = "1024m", "1536m"
_FLINK = Path(PEER_PYTHON).parent.parent / "lib"


class BenchError(Exception):
    """A command failed or something did not come about; the message shows the output."""


def wait_for(what: str, look: Callable[[], T | None], pause: float = 0.05) -> T:
    """What `look` finds, looked for until the limit."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(pause)
    raise BenchError(f"{what} did not come about within {LIMIT:g} s")


class Engine(ABC):
    """One engine with at most one session at a time."""

    name = ""
    #: Texts in the command lines of the processes whose deaths are measured.
    task_executor_mark = ""
    master_mark = ""

    def __init__(self, hadoop: HadoopCluster) -> None:
        self.hadoop = hadoop
        self.application = ""
        self.web = ""
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-yarn-{self.name}-"))

    @abstractmethod
    def session_command(self, spare: int, settings: Mapping[str, str]) -> Sequence[str]:
        """Starts a detached session; `spare` TaskExecutors are kept ready beside those in use."""

    @abstractmethod
    def stop_command(self) -> tuple[Sequence[str], str]:
        """Ends the session; the command and its input."""

    @abstractmethod
    def run_command(self, kind: str, settings: Mapping[str, str], detached: bool) -> Sequence[str]:
        """Runs bench/programs/yarn_job.py in the session."""

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.hadoop.environment()}

    def headers(self) -> dict[str, str]:
        return {}

    def start_highly_available_session(self, storage: str) -> None:
        """A session whose master is followed by another; REST has the same port under each."""
        port = next(free_ports(str(self.folder)))
        self.start_session(
            0,
            {
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": self.hadoop.zookeeper_quorum,
                "high-availability.zookeeper.path.root": f"/bench-{self.name}",
                "high-availability.zookeeper.client.session-timeout": "6 s",
                "high-availability.storageDir": storage,
                "yarn.application-attempts": "5",
                "rest.bind-port": str(port),
                "rest.bind-address": "0.0.0.0",
            },
        )
        self.web = f"http://127.0.0.1:{port}"

    def start_session(self, spare: int = 0, settings: Mapping[str, str] = MappingProxyType({})) -> float:
        """Seconds from the command's start until REST answers."""
        begin = time.monotonic()
        output = self._run(self.session_command(spare, settings))
        found, web = _APPLICATION.search(output), _WEB.search(output)
        if found is None or web is None:
            raise BenchError(
                f"{self.name}: the session's command names no application and web address:\n{output}"
            )
        self.application, self.web = found.group(), web.group(1)
        wait_for("an answer of REST", lambda: self._try("/overview"))
        return time.monotonic() - begin

    def stop_session(self) -> None:
        """Ends the session and waits until YARN says so."""
        if not self.application:
            return
        command, given = self.stop_command()
        application, self.application = self.application, ""
        try:
            self._run(command, given)
            wait_for("the end of the session", lambda: self._ended(application))
        except BenchError:
            self.hadoop.kill_application(application)
            raise

    def run_short_job(self) -> float:
        """Seconds of the command that runs a thousand records to their end."""
        begin = time.monotonic()
        self._run(self.run_command("short", {}, detached=False))
        return time.monotonic() - begin

    def start_long_job(self, checkpoints: str) -> str:
        """The id of a job that has completed two checkpoints."""
        settings = {
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": checkpoints,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "100",
            "restart-strategy.fixed-delay.delay": "0 s",
        }
        output = self._run(self.run_command("long", settings, detached=True))
        found = _JOB.search(output)
        if found is None:
            raise BenchError(f"{self.name}: the command names no job:\n{output}")
        job = found.group(1)
        wait_for("two completed checkpoints", lambda: self._completed(job) >= 2 or None)
        return job

    def time_recovery(self, job: str) -> float:
        """Seconds from kill -9 of a TaskExecutor of the job until all its tasks run again."""
        before = sum(int(subtask["attempt"]) for subtask in self._subtasks(job))

        def is_new(subtasks: Sequence[Subtask]) -> bool:
            return sum(int(subtask["attempt"]) for subtask in subtasks) >= before + len(subtasks)

        executors = self._processes(self.task_executor_mark)
        used = self._executors_of(job)
        victims = [each for each in executors if len(used) != 1 or self._is(each.pid, used)] or executors
        begin = time.monotonic()
        for victim in victims:
            os.kill(victim.pid, 9)
        wait_for("all tasks running again", lambda: self._runs(job, is_new))
        return time.monotonic() - begin

    def time_recovery_of_master(self, job: str) -> float:
        """Seconds from kill -9 of the master until all tasks of the job run under the next one."""
        (victim,) = self._processes(self.master_mark)
        killed_ms, begin = time.time() * 1000, time.monotonic()

        def is_new(subtasks: Sequence[Subtask]) -> bool:
            return all(subtask["start-time"] > killed_ms for subtask in subtasks)

        os.kill(victim.pid, 9)
        wait_for("all tasks running under the next master", lambda: self._runs(job, is_new))
        return time.monotonic() - begin

    def cancel(self, job: str) -> None:
        self._ask("PATCH", f"/jobs/{job}?mode=cancel")
        wait_for(
            "the end of the job", lambda: self._ask("GET", f"/jobs/{job}")["state"] == "CANCELED" or None
        )

    def wait_for_executors(self, number: int) -> None:
        wait_for("TaskExecutors", lambda: self._ask("GET", "/overview")["taskmanagers"] >= number or None)

    # REST.

    def _ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(f"{self.web}{path}", method=method, headers=self.headers())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"{}")

    def _try(self, path: str) -> Any:
        try:
            return self._ask("GET", path)
        except (OSError, urllib.error.URLError):
            return None

    def _completed(self, job: str) -> int:
        found = self._try(f"/jobs/{job}/checkpoints")
        return int(found["counts"]["completed"]) if found else 0

    def _subtasks(self, job: str) -> list[Subtask]:
        vertices = [vertex["id"] for vertex in self._ask("GET", f"/jobs/{job}")["vertices"]]
        found = [self._ask("GET", f"/jobs/{job}/vertices/{vertex}") for vertex in vertices]
        return [subtask for vertex in found for subtask in vertex["subtasks"]]

    def _runs(self, job: str, is_new: Callable[[Sequence[Subtask]], bool]) -> bool | None:
        """True once all subtasks run and `is_new` says that they have started again; None before."""
        try:
            subtasks = self._subtasks(job)
        except OSError:
            return None
        running = bool(subtasks) and all(subtask["status"] == "RUNNING" for subtask in subtasks)
        return True if running and is_new(subtasks) else None

    def _processes(self, mark: str) -> list[ContainerProcess]:
        """Processes of the session's containers by a text of their command lines, shells apart."""
        return [
            process
            for process in self.hadoop.container_processes(self.application)
            if mark in process.command and "bash" not in process.command.split()[0]
        ]

    def _executors_of(self, job: str) -> set[str]:
        return {str(subtask.get("taskmanager-id", "")) for subtask in self._subtasks(job)}

    @staticmethod
    def _is(pid: int, names: set[str]) -> bool:
        """Whether a process's command or variables name one of these TaskExecutors."""
        text = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        return any(name.encode() in text for name in names if name)

    # Commands.

    def _ended(self, application: str) -> bool | None:
        return (
            True
            if self.hadoop.application(application)["state"] in ("FINISHED", "FAILED", "KILLED")
            else None
        )

    def _run(self, command: Sequence[str], given: str = "") -> str:
        done = subprocess.run(
            list(command),
            env=self.environment(),
            cwd=ROOT,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        output = done.stdout + done.stderr
        if done.returncode != 0:
            raise BenchError(
                f"{self.name}: {' '.join(command)} ended with {done.returncode}:\n{output[-5000:]}"
            )
        return output


class Yarrow(Engine):
    """The engine of this checkout, in the mode its users get."""

    name = "yarrow"
    task_executor_mark = "yarrow.container.process.yarn_task_executor"
    master_mark = "yarrow.am.yarn.application_master"

    def _yarrow(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).parent / "yarrow"), *arguments]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "YARROW_CONF_DIR": str(self.folder)}

    def session_command(self, spare: int, settings: Mapping[str, str]) -> Sequence[str]:
        own = {"yarn.properties-file.location": str(self.folder), "taskmanager.numberOfTaskSlots": "1"}
        if spare:
            own["slotmanager.redundant-taskmanager-num"] = str(spare)
        dynamic = [f"-D{key}={value}" for key, value in {**own, **settings}.items()]
        (self.folder / "config.yaml").write_text(f"yarn.properties-file.location: {self.folder}\n")
        more = ["-n", str(spare)] if spare else []
        return self._yarrow(
            "session",
            "-d",
            "-nm",
            "bench",
            "-jm",
            MASTER_MEMORY,
            "-tm",
            TASK_EXECUTOR_MEMORY,
            *more,
            *dynamic,
        )

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token()}"}

    def _token(self) -> str:
        if getattr(self, "_known", ("", ""))[0] != self.application:
            output = self._run(self._yarrow("token", self.application))
            self._known = (self.application, output.strip())
        return self._known[1]

    def stop_command(self) -> tuple[Sequence[str], str]:
        return self._yarrow("session", "-id", self.application), "stop\n"

    def run_command(self, kind: str, settings: Mapping[str, str], detached: bool) -> Sequence[str]:
        dynamic = [f"-D{key}={value}" for key, value in settings.items()]
        flags = ["-d"] if detached else []
        return self._yarrow(
            "run", "-yid", self.application, *flags, *dynamic, str(PROGRAMS / "yarn_job.py"), "yarrow", kind
        )


class Flink(Engine):
    """PyFlink's distribution, from the environment of the peers."""

    name = "flink"
    task_executor_mark = "YarnTaskExecutorRunner"
    master_mark = "YarnSessionClusterEntrypoint"

    def __init__(self, hadoop: HadoopCluster) -> None:
        super().__init__(hadoop)
        self._home = next(_FLINK.glob("python*/site-packages/pyflink"))
        self._classpath = hadoop.run("yarn", "classpath", "--glob").stdout.strip()
        # What the distribution's own file opens of the JDK's modules; without it no job runs.
        delivered = yaml.safe_load((self._home / "conf" / "config.yaml").read_text())
        (self.folder / "config.yaml").write_text(
            f"env.java.opts.all: {delivered['env']['java']['opts']['all']}\n"
            f"jobmanager.memory.process.size: {MASTER_MEMORY}\n"
            f"taskmanager.memory.process.size: {TASK_EXECUTOR_MEMORY}\n"
            "taskmanager.numberOfTaskSlots: 1\n"
            f"yarn.properties-file.location: {self.folder}\n"
        )
        for name in ("log4j.properties", "log4j-cli.properties", "log4j-session.properties"):
            source = self._home / "conf" / name
            if source.exists():
                (self.folder / name).write_text(source.read_text())

    @staticmethod
    def is_installed() -> bool:
        return Path(PEER_PYTHON).exists() and any(_FLINK.glob("python*/site-packages/pyflink"))

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            "FLINK_HOME": str(self._home),
            "FLINK_CONF_DIR": str(self.folder),
            "FLINK_LOG_DIR": str(self.folder),
            "HADOOP_CLASSPATH": self._classpath,
        }

    def session_command(self, spare: int, settings: Mapping[str, str]) -> Sequence[str]:
        own = {"slotmanager.redundant-taskmanager-num": str(spare)} if spare else {}
        more = [f"-D{key}={value}" for key, value in {**own, **settings}.items()]
        return ["bash", str(self._home / "bin" / "yarn-session.sh"), "-d", "-nm", "flink-bench", *more]

    def stop_command(self) -> tuple[Sequence[str], str]:
        return ["bash", str(self._home / "bin" / "yarn-session.sh"), "-id", self.application], "stop\n"

    def run_command(self, kind: str, settings: Mapping[str, str], detached: bool) -> Sequence[str]:
        dynamic = [f"-D{key}={value}" for key, value in settings.items()]
        flags = ["-d"] if detached else []
        python = ["-pyexec", PEER_PYTHON, "-pyclientexec", PEER_PYTHON]
        target = ["-t", "yarn-session", f"-Dyarn.application.id={self.application}"]
        program = ["-py", str(PROGRAMS / "yarn_job.py"), "pyflink", kind]
        flink = ["bash", str(self._home / "bin" / "flink"), "run"]
        return [*flink, *flags, *target, *python, *dynamic, *program]
