"""The TaskExecutor as a process: bootstrap by pipe, gRPC with mutual TLS, output to its parent, its end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.cluster.task_executor.conftest import (
    JOB,
    RESOURCE,
    allocation,
    attempt,
    graph_of,
    make_bootstrap,
    task,
)
from tests.cluster.task_executor.fake_worker import PRINTED_LINES
from tests.cluster.task_executor.fakes import FakeJobMaster, FakeResourceManager
from tests.unit.container.supervisor.conftest import (
    DEADLINE,
    ROOT,
    eventually,
    process_runs,
    run,
    within,
)
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobMasterID, ResourceManagerID
from yarrow.runtime.graph.job_graph import encode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.bootstrap import TASK_EXECUTOR_COMMAND, encode_bootstrap
from yarrow.runtime.rpc.gateway_type import JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR
from yarrow.runtime.rpc.gateways import TaskExecutorGateway
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.messages import Deployment, ResourceProfile, SlotID, SlotRequest
from yarrow.runtime.rpc.output_stream import (
    ForwardedOutput,
    encode_confirmation,
    encode_output,
    read_output,
)
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.security.certificates import CertificateAuthority

pytestmark = pytest.mark.cluster
SECRET = b"this is the secret of the data plane"
COMMAND = [sys.executable, "-m", "tests.cluster.task_executor.process_main"]


@dataclass
class Running:
    """A TaskExecutor process and those it talks to."""

    process: subprocess.Popen[bytes]
    #: The client's end of its standard output if that is forwarded.
    output: socket.socket | None
    resource_manager: FakeResourceManager
    job_master: FakeJobMaster
    job_master_address: str
    gateway: TaskExecutorGateway
    logs: Path
    work: Path

    def family(self) -> list[psutil.Process]:
        """The process and all below it."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    async def run_task(self, name: str) -> None:
        """Starts a task in slot 0 and waits until it was heard of."""
        await self.submit(name)
        await eventually(
            lambda: self.job_master.state_of(attempt()) is not None, "the task is running or has ended"
        )

    async def submit(self, name: str) -> None:
        """Brings up slot 0 and submits a task to it."""
        await self.gateway.request_slot(
            SlotRequest(
                slot_id=SlotID(resource_id=RESOURCE, index=0),
                job_id=JOB,
                allocation_id=allocation(1),
                profile=ResourceProfile(),
                job_master_address=self.job_master_address,
                job_master_id=JobMasterID("jm-1"),
                resource_manager_id=ResourceManagerID("rm-1"),
            )
        )
        await eventually(lambda: allocation(1) in self.job_master.offers, "the slot was offered")
        await self.gateway.submit_tasks(
            Deployment(
                job_id=JOB,
                job_master_id=JobMasterID("jm-1"),
                job_graph=encode_job_graph(graph_of(name)),
                workers=(),
                placements=(),
                tasks=(task(0, 0, allocation(1)),),
            )
        )


@asynccontextmanager
async def running(
    folder: Path, rejection: str = "", command: list[str] = COMMAND, **changes: object
) -> AsyncIterator[Running]:
    """Starts the process and waits for its registration; kills it at the end if it still runs."""
    authority = CertificateAuthority("app", SystemClock())
    service = RpcService(
        [
            GrpcTransport(
                GrpcSettings(
                    application_id="app", bind_host="127.0.0.1", identity=authority.issue("the control plane")
                )
            )
        ]
    )
    await service.start()
    resource_manager, job_master = FakeResourceManager(), FakeJobMaster(JOB)
    resource_manager.rejection = rejection
    await resource_manager.start()
    await job_master.start()
    bootstrap = make_bootstrap(
        folder,
        resource_manager_address=service.serve(RESOURCE_MANAGER, resource_manager),
        identity=authority.issue("the TaskExecutor"),
        data_secret=SECRET,
        **changes,
    )
    job_master_address = service.serve(JOB_MASTER, job_master)
    reading, writing = socket.socketpair() if bootstrap.forward_output else (None, None)
    if writing is not None:
        # Little fits into it.
        writing.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with (folder / "logs" / "parent.err").open("wb") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if writing is None else writing.fileno(),
            stderr=errors,
            start_new_session=True,
        )
    if writing is not None:
        writing.close()
    assert process.stdin is not None
    try:
        process.stdin.write(encode_bootstrap(bootstrap))
        process.stdin.flush()
        await eventually(
            lambda: bool(resource_manager.registrations or rejection), "the TaskExecutor has registered"
        )
        address = resource_manager.registrations[0].address if not rejection else "grpc://127.0.0.1:1/none"
        yield Running(
            process,
            reading,
            resource_manager,
            job_master,
            job_master_address,
            service.connect(address, TASK_EXECUTOR),
            folder / "logs",
            folder / "work",
        )
    finally:
        with process:
            process.stdin.close()
            try:
                await asyncio.to_thread(process.wait, DEADLINE)
            finally:
                process.kill()
        if reading is not None:
            reading.close()
        await resource_manager.stop()
        await job_master.stop()
        await service.stop()


async def ended(process: subprocess.Popen[bytes]) -> int:
    return await within(asyncio.to_thread(process.wait))


async def all_gone(processes: list[psutil.Process]) -> None:
    await eventually(
        lambda: not any(process_runs(process.pid) for process in processes), f"{processes} ended"
    )


def proc_file(process: psutil.Process, name: str) -> bytes:
    return Path(f"/proc/{process.pid}/{name}").read_bytes()


def test_supervisor_is_light_and_no_secret_shows(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as r:
            await r.run_task("hold")
            supervisor, *others = r.family()
            maps = proc_file(supervisor, "maps").decode()
            for library in ("numpy", "pyarrow", "pandas", "polars"):
                assert f"/{library}/" not in maps, f"the supervisor has loaded {library}"
            assert sorted(process.name() for process in others) == ["yarrow-slot-0", "yarrow-template"]
            for process in (supervisor, *others):
                shown = proc_file(process, "cmdline") + proc_file(process, "environ")
                assert SECRET not in shown
                assert b"PRIVATE KEY" not in shown
            for path in r.logs.iterdir():
                text = path.read_bytes()
                assert SECRET not in text
                assert b"PRIVATE KEY" not in text

    run(body())


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_release_ends_the_process_in_order(start: str, tmp_path: Path) -> None:
    async def body() -> None:
        configuration = {"taskmanager.cpu.cores": "2", "taskmanager.worker.start": start}
        async with running(tmp_path, configuration=configuration) as r:
            await r.run_task("hold")
            family = r.family()
            await r.gateway.release(ResourceManagerID("rm-1"), "idle")
            assert await ended(r.process) == 0
            await all_gone(family)
            assert r.resource_manager.disconnects == ["the TaskExecutor was released: idle"]
            assert "has ended" in (r.logs / f"taskexecutor-{RESOURCE}.log").read_text()
            assert list(r.work.iterdir()) == []

    run(body())


def test_end_of_standard_input_ends_everything(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as r:
            await r.run_task("stuck")
            family = r.family()
            assert r.process.stdin is not None
            r.process.stdin.close()
            await ended(r.process)
            await all_gone(family)
            assert not r.work.exists(), "nobody else would remove it"

    run(body())


def test_a_killed_task_executor_leaves_no_process(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as r:
            await r.run_task("hold")
            family = r.family()
            assert len(family) == 3
            r.process.kill()
            await all_gone(family)

    run(body())


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    """The parent is killed hard: all that ends is the pipe it held."""
    program = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen({COMMAND!r}, stdin=subprocess.PIPE, start_new_session=True)\n"
        "print(child.pid, file=sys.stderr, flush=True)\n"
        "while data := os.read(0, 65536):\n"
        "    child.stdin.write(data)\n"
        "    child.stdin.flush()\n"
    )

    async def body() -> None:
        async with running(tmp_path, command=[sys.executable, "-c", program]) as r:
            await r.run_task("stuck")
            family = r.family()
            assert len(family) == 4, "parent, supervisor, template, worker"
            r.process.kill()
            await all_gone(family)

    run(body())


@pytest.mark.parametrize("how", ["end of its parent", "signal"])
def test_it_ends_at_once_while_it_still_waits_for_zookeeper(how: str, tmp_path: Path) -> None:
    """Something listens there and says nothing, so the start hangs until the limit of the configuration."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        configuration = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": f"{host}:{port}",
            "high-availability.storageDir": str(tmp_path / "ha"),
            "high-availability.zookeeper.client.connection-timeout": "300 s",
        }
        bootstrap = make_bootstrap(tmp_path, data_secret=SECRET, configuration=configuration)
        process = subprocess.Popen(
            COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        with process:
            try:
                assert process.stdin is not None
                process.stdin.write(encode_bootstrap(bootstrap))
                process.stdin.flush()
                silent.settimeout(DEADLINE)
                connection, _ = silent.accept()
                family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                with connection:
                    if how == "signal":
                        process.terminate()
                    else:
                        process.stdin.close()
                    process.wait(120)
                    run(all_gone(family))
            finally:
                process.kill()
    if how != "signal":
        assert not (tmp_path / "work").exists(), "nobody else would remove it"


def test_signal_ends_it_in_order(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as r:
            await r.run_task("hold")
            family = r.family()
            r.process.send_signal(signal.SIGTERM)
            assert await ended(r.process) == 0
            await all_gone(family)
            assert r.resource_manager.disconnects == ["the TaskExecutor got the signal SIGTERM"]
            assert r.resource_manager.by_force == [True]
            assert r.job_master.disconnects == [], "the ResourceManager tells it, and why"

    run(body())


def test_refused_registration_fails_the_process(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, rejection="another version") as r:
            assert await ended(r.process) == 1
            errors = (r.logs / "parent.err").read_text()
            assert "the ResourceManager refused the TaskExecutor: another version" in errors

    run(body())


def test_without_a_bootstrap_it_says_who_starts_it(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, *TASK_EXECUTOR_COMMAND],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1
    assert "`yarrow taskmanager`" in finished.stderr
    assert "Traceback" not in finished.stderr


def bytes_in(connection: socket.socket) -> int:
    """How much waits in a socket."""
    (waiting,) = struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))
    return int(waiting)


def test_the_end_of_a_task_is_told_after_its_output(tmp_path: Path) -> None:
    """The client reads nothing at first, and confirms nothing then: the task has not ended."""

    async def body() -> None:
        async with running(tmp_path, forward_output=True) as r:
            output = r.output
            assert output is not None

            async def has_not_ended() -> None:
                for _ in range(5):
                    # The worker answers after it has told the end; a report would be quicker than five rounds.
                    assert await r.gateway.request_thread_dump()
                assert r.job_master.state_of(attempt()) is not ExecutionState.FINISHED

            await r.submit("print")
            await eventually(lambda: bytes_in(output) > 0, "output waits in the socket")
            log = r.logs / f"taskexecutor-{RESOURCE}.out"
            await eventually(
                lambda: log.read_text().count("\n") == PRINTED_LINES, "the supervisor has got everything"
            )
            await has_not_ended()
            lines: list[str] = []
            stream = output.makefile("rb")

            def read() -> int:
                taken = 0
                while len(lines) < PRINTED_LINES:
                    frame = read_output(stream)
                    assert isinstance(frame, ForwardedOutput)
                    lines.extend(frame.text.splitlines())
                    taken += len(encode_output(frame))
                return taken

            taken = await within(asyncio.to_thread(read))
            await has_not_ended()
            output.sendall(encode_confirmation(taken))
            await eventually(
                lambda: r.job_master.state_of(attempt()) is ExecutionState.FINISHED, "the end was told"
            )
            assert lines == [f"line {number} of {attempt()}" for number in range(PRINTED_LINES)]

    run(body())
