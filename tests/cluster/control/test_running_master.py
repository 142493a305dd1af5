"""A master of an application and its TaskExecutors as they run in containers, without YARN around them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.am.yarn.containers_of_yarn import ContainersOfYarn
from tests.unit.runtime.security.stores import Stores
from tests.yarn.waiting import GRACE, until
from yarrow.am.yarn.application_master import ChildProcesses
from yarrow.am.yarn.modes import progress
from yarrow.am.yarn.modes.application_end import ApplicationEnd
from yarrow.am.yarn.running_master import RunningMaster
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.roles import Role
from yarrow.runtime.security.certificates import CertificateAuthority
from yarrow.runtime.yarn.application import (
    ApplicationDescription,
    ContainerSecrets,
    DeploymentMode,
    MasterSecrets,
    ProgramDescription,
)
from yarrow.runtime.yarn.container_files import ContainerFolder
from yarrow.runtime.yarn.gateways import FinalStatus
from yarrow.runtime.yarn.layout import (
    DESCRIPTION_FILE,
    KV_ATTEMPT,
    KV_REST_ADDRESS,
    TASK_EXECUTOR_SECRETS_FILE,
)

pytestmark = pytest.mark.cluster

TOKEN = "the token of this application"
NO_TLS = PemIdentity()
PROGRAM = """
import sys
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
for number in (1, 2):
    with env.from_collection([number, 10]).map(lambda x: x * 2).execute_and_collect(f"job {number}") as rows:
        print("sum", sum(rows), flush=True)
if sys.argv[1:] == ["fail"]:
    raise RuntimeError("my own")
"""
#: Seconds for an application, which only end one that hangs.
LIMIT = 300.0
#: main() ends before its job does.
LEAVING = """
import time
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([1, 2, 3]).map(lambda x: time.sleep(0.3) or x).print()
env.execute_async("left")
"""
ENDLESS = """
import time
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_sequence(1, 10**15).filter(lambda x: time.sleep(0.01)).print()
env.execute("endless")
"""


class LocalContainers(ContainersOfYarn):
    """Containers are processes of this host, in folders as a NodeManager makes them."""

    def __init__(self, folder: Path, description: ApplicationDescription, secrets: ContainerSecrets) -> None:
        super().__init__()
        self._folder = folder
        self._description = description
        self._secrets = secrets
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def request_container(self, service: str, environment: Mapping[str, str]) -> str:
        handle = super().request_container(service, environment)
        folder = self._folder / handle
        (folder / "logs").mkdir(parents=True)
        (folder / DESCRIPTION_FILE).write_bytes(msgspec.json.encode(self._description))
        (folder / TASK_EXECUTOR_SECRETS_FILE).write_bytes(msgspec.msgpack.encode(self._secrets))
        variables = {
            **os.environ,
            **environment,
            "CONTAINER_ID": f"container_1_0001_01_{len(self.processes) + 2:06}",
            "NM_HOST": "127.0.0.1",
            "LOG_DIRS": str(folder / "logs"),
        }
        self.processes[handle] = subprocess.Popen(
            [sys.executable, "-P", "-m", "yarrow.container.process.yarn_task_executor"],
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
        self.grant(handle)
        return handle

    def release_container(self, handle: str) -> None:
        process = self.processes[handle]
        process.terminate()
        process.wait(LIMIT)
        super().release_container(handle)


class Application:
    """One attempt of an application in this process."""

    def __init__(
        self,
        folder: Path,
        mode: DeploymentMode,
        *arguments: str,
        attached: bool = False,
        rest_identity: PemIdentity = NO_TLS,
        configuration: Mapping[str, str] | None = None,
        program: str = PROGRAM,
    ) -> None:
        (folder / "job.py").write_text(program)
        self.description = ApplicationDescription(
            mode=mode,
            name="application",
            configuration={
                "taskmanager.memory.process.size": "512m",
                "jobmanager.memory.process.size": "512m",
                "client.heartbeat.timeout": "200 ms",
                **(configuration or {}),
            },
            attached=attached,
            program=ProgramDescription(path=str(folder / "job.py"), arguments=arguments),
            interpreter=sys.executable,
        )
        authority = CertificateAuthority("application", SystemClock())
        common = {"application_secret_id": "a" * 32, "data_secret": b"d" * 32}
        executors = ContainerSecrets(
            identity=authority.issue("taskexecutors", Role.TASK_EXECUTOR),
            **common,  # type: ignore[arg-type]
        )
        self.yarn = LocalContainers(folder, self.description, executors)
        secrets = MasterSecrets(
            identity=authority.issue("master", Role.JOB_MANAGER),
            rest_identity=rest_identity,
            rest_token_hash=hashlib.sha256(TOKEN.encode()).digest(),
            **common,  # type: ignore[arg-type]
        )
        self.logs = folder / "master-logs"
        self.logs.mkdir()
        place = ContainerFolder(
            folder, "application_1_0001", "container_1_0001_01_000001", 1, "127.0.0.1", self.logs
        )
        temporary = folder / "temporary"
        temporary.mkdir()
        self.master = RunningMaster(
            self.description,
            secrets,
            place,
            temporary,
            self.yarn,
            ChildProcesses(),
            explain_waiting=lambda *_: "",
        )

    async def run(self, meanwhile: Callable[[], Any] = lambda: None) -> ApplicationEnd | None:
        """Runs to its end; `meanwhile` in a thread, once REST has been published."""
        async with asyncio.timeout(LIMIT):
            running = asyncio.create_task(self.master.run())
            while KV_REST_ADDRESS not in self.yarn.published and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.to_thread(meanwhile)
            return await running

    def ask(self, method: str, path: str, token: str = TOKEN, base: str = "") -> Any:
        request = urllib.request.Request(
            f"{base or self.yarn.published[KV_REST_ADDRESS]}{path}", method=method
        )
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return json.loads(answer.read())


def test_a_session_lets_in_who_has_the_token_and_ends_when_told(tmp_path: Path) -> None:
    application = Application(tmp_path, DeploymentMode.SESSION)

    def look() -> None:
        with pytest.raises(urllib.error.HTTPError) as refused:
            application.ask("GET", "/overview", "another")
        refused.value.close()
        assert refused.value.code == 401
        assert application.ask("GET", "/overview")["taskmanagers"] == 0
        application.ask("DELETE", "/cluster")

    end = asyncio.run(application.run(look))
    assert end == ApplicationEnd(FinalStatus.SUCCEEDED, "The session was stopped.")
    assert application.yarn.published[KV_ATTEMPT] == "1/1"
    assert application.yarn.processes == {}, "nobody needed a TaskExecutor"


def test_the_listener_of_yarns_proxy_is_this_hosts_alone_and_shows_views(tmp_path: Path) -> None:
    application = Application(tmp_path, DeploymentMode.SESSION)

    def look() -> None:
        # It is added behind the address of REST.
        until(lambda: bool(application.yarn.pages), GRACE, "the page for YARN's proxy")
        (page,) = application.yarn.pages
        port = int(page.rpartition(":")[2])
        assert page != application.yarn.published[KV_REST_ADDRESS]
        # Another address of this host stands for those that other hosts reach.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
        assert application.ask("GET", "/overview", token="", base=page)["taskmanagers"] == 0
        for method, path, token in (
            ("DELETE", "/cluster", TOKEN),
            ("POST", "/jobs", ""),
            ("PATCH", "/jobs/a", ""),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                application.ask(method, path, token, page)
            refused.value.close()
            assert refused.value.code == 403
        application.ask("DELETE", "/cluster")

    end = asyncio.run(application.run(look))
    assert end is not None and end.status is FinalStatus.SUCCEEDED


def test_without_authentication_rest_says_so_and_asks_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application(
        tmp_path, DeploymentMode.SESSION, configuration={"security.rest.authentication": "none"}
    )
    end = asyncio.run(application.run(lambda: application.ask("DELETE", "/cluster", token="")))
    assert end is not None and end.status is FinalStatus.SUCCEEDED
    assert "security.rest.authentication is none" in caplog.text


def test_a_program_reaches_the_rest_of_its_own_application_whatever_tls_says(tmp_path: Path) -> None:
    identity = Stores(tmp_path).identity
    own = PemIdentity(
        ca_certificate=identity.ca_certificate,
        certificate=identity.certificate,
        private_key=identity.private_key,
    )
    application = Application(
        tmp_path,
        DeploymentMode.APPLICATION,
        rest_identity=own,
        configuration={
            "security.ssl.rest.enabled": "true",
            "security.ssl.rest.authentication-enabled": "true",
        },
    )
    end = asyncio.run(application.run())
    assert end == ApplicationEnd(FinalStatus.SUCCEEDED, "2 jobs have finished.")
    assert application.yarn.published[KV_REST_ADDRESS].startswith("https://")
    assert application.yarn.pages[0].startswith("http://"), "of this host alone"


def test_an_attached_session_ends_with_its_client(tmp_path: Path) -> None:
    silence = {"client.heartbeat.timeout": "600 s"}
    application = Application(tmp_path, DeploymentMode.SESSION, attached=True, configuration=silence)

    def speak_and_fall_silent() -> None:
        application.ask("PATCH", "/cluster/clientHeartbeat")
        # As if that had been the client's last word, so long ago.
        application.master._activity._last_heartbeat -= 601

    end = asyncio.run(application.run(speak_and_fall_silent))
    assert end is not None and end.status is FinalStatus.SUCCEEDED
    assert "silent for 600 s (client.heartbeat.timeout)" in end.diagnostics


def test_a_signal_ends_the_attempt_and_not_the_application(tmp_path: Path) -> None:
    application = Application(tmp_path, DeploymentMode.SESSION)
    assert asyncio.run(application.run(lambda: os.kill(os.getpid(), signal.SIGTERM))) is None
    assert application.yarn.ends == []


def test_a_program_runs_its_jobs_on_containers_and_leaves_nothing(tmp_path: Path) -> None:
    application = Application(tmp_path, DeploymentMode.APPLICATION)
    assert asyncio.run(application.run()) == ApplicationEnd(FinalStatus.SUCCEEDED, "2 jobs have finished.")
    printed = (application.logs / "jobmanager.out").read_text()
    assert printed.count("Job has been submitted") == 2
    assert "sum 22" in printed and "sum 24" in printed
    (container,) = application.yarn.processes
    assert application.yarn.processes[container].returncode == 0
    folder = tmp_path / container
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [DESCRIPTION_FILE, TASK_EXECUTOR_SECRETS_FILE, "logs"]
    ), "its working folder is gone, and what YARN brought is there"
    assert (folder / TASK_EXECUTOR_SECRETS_FILE).stat().st_mode & 0o777 == 0o600
    assert "registered at the ResourceManager" in (folder / "logs" / "taskmanager.log").read_text()


def test_the_error_of_a_program_is_the_applications(tmp_path: Path) -> None:
    application = Application(tmp_path, DeploymentMode.APPLICATION, "fail")
    end = asyncio.run(application.run())
    assert end is not None and end.status is FinalStatus.FAILED
    assert end.diagnostics.endswith("RuntimeError: my own")
    assert TOKEN not in (application.logs / "jobmanager.out").read_text()


def test_an_application_lasts_until_the_last_job_that_its_program_left_has_ended(tmp_path: Path) -> None:
    application = Application(tmp_path, DeploymentMode.APPLICATION, program=LEAVING)
    end = asyncio.run(application.run())
    assert end is not None and end.status is FinalStatus.SUCCEEDED
    assert end.diagnostics.startswith("Job 'left' (") and end.diagnostics.endswith(" has finished.")


def test_yarn_is_told_how_far_the_jobs_of_a_program_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_INTERVAL", 0.05)
    application = Application(tmp_path, DeploymentMode.APPLICATION)
    asyncio.run(application.run())
    assert application.yarn.progress[0] == 0.0
    assert max(application.yarn.progress) > 0.0
    assert all(0.0 <= told <= 1.0 for told in application.yarn.progress)


def test_an_application_with_jobs_of_its_own_ends_when_a_client_asks_for_it(tmp_path: Path) -> None:
    application = Application(tmp_path, DeploymentMode.APPLICATION, program=ENDLESS)

    def runs() -> bool:
        return any(job["state"] == "RUNNING" for job in application.ask("GET", "/jobs/overview")["jobs"])

    def stop() -> None:
        until(runs, GRACE, "its job runs")
        application.ask("DELETE", "/cluster")

    end = asyncio.run(application.run(stop))
    assert end is not None and end.status is FinalStatus.KILLED
    assert "stopped by a client" in end.diagnostics
    assert all(process.poll() is not None for process in application.yarn.processes.values())
