"""A worker starts clean, by fork and by exec, and its end is told."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.container.supervisor.conftest import (
    ROOT,
    OpenLauncher,
    eventually,
    launch_settings,
    open_launcher,
    process_runs,
    run,
    within,
)
from yarrow.container.launch.process_start import execute_template, worker_environment
from yarrow.container.launch.template_client import TemplateLauncher
from yarrow.container.launch.worker_launcher import RunningWorker, WorkerExit
from yarrow.container.protocol.errors import TemplateLostError, WorkerStartError
from yarrow.container.protocol.frame_channel import FrameChannel
from yarrow.container.protocol.worker_protocol import (
    MessageFromWorker,
    OutputLines,
    StartWorker,
    StopWorker,
    WorkerSettings,
)
from yarrow.runtime.common.ids import WorkerID


def start_message(number: int = 0, do: str = "") -> StartWorker:
    return StartWorker(
        settings=WorkerSettings(
            worker_id=WorkerID(f"te/{number}"),
            resource_id="te",
            host="localhost",
            host_key="here",
            working_directory="/nowhere",
            configuration={"test.do": do},
            data_secret=b"",
        )
    )


@dataclass
class Peer:
    """The supervisor's end, as far as these tests need it."""

    worker: RunningWorker
    channel: FrameChannel[MessageFromWorker]
    messages: list[MessageFromWorker]
    closed: list[object]

    @property
    def facts(self) -> dict[str, str]:
        (output,) = self.messages
        assert isinstance(output, OutputLines)
        return dict(line.split("=", 1) for line in output.text.split("\n"))


async def launch(open_: OpenLauncher, number: int = 0) -> Peer:
    worker, sock = await within(
        open_.launcher.launch(WorkerID(f"te/{number}"), f"yarrow-slot-{number}", open_.raw_output)
    )
    return await connect(worker, sock)


async def connect(worker: RunningWorker, sock: socket.socket) -> Peer:
    messages: list[MessageFromWorker] = []
    closed: list[object] = []
    channel: FrameChannel[MessageFromWorker] = FrameChannel(
        MessageFromWorker,  # type: ignore[arg-type]
        messages.append,
        closed.append,
    )
    await channel.open(sock)
    return Peer(worker, channel, messages, closed)


async def launch_and_report(open_: OpenLauncher, number: int = 0) -> Peer:
    peer = await launch(open_, number)
    peer.channel.send(start_message(number))
    await eventually(lambda: bool(peer.messages), "the worker reported")
    return peer


@pytest.mark.slow
def test_worker_has_no_descriptor_but_its_own(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher(start_mode, "report", tmp_path) as open_:
            other = await launch_and_report(open_, 1)
            facts = (await launch_and_report(open_, 2)).facts
            assert facts["descriptors"] == f"[0, 1, 2, {facts['control']}]"
            assert facts["stdin"] == "/dev/null"
            assert facts["stdout"] == facts["stderr"] == str(open_.raw_path)
            # 3 is the listing itself: nothing of ours reaches what user code starts.
            assert facts["subprocess"] == "0 1 2 3"
            assert other.facts["pid"] != facts["pid"]

    run(body())


def test_worker_is_a_process_of_its_own(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher(start_mode, "report", tmp_path) as open_:
            peer = await launch_and_report(open_)
            facts = peer.facts
            assert int(facts["pid"]) == peer.worker.pid
            assert facts["name"] == "yarrow-slot-0"
            assert facts["sigint"] == "SIG_IGN"
            assert facts["sigchld"] == "SIG_DFL"
            assert facts["omp"] == os.environ.get("OMP_NUM_THREADS", "1")
            modules = set(facts["modules"].split(","))
            assert not modules & {"grpc", "polars", "pandas", "fastapi"}

    run(body())


def thread_names(pid: int | None) -> set[str]:
    return {path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")}


def test_forked_workers_come_from_a_warm_single_threaded_template(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher("fork", "report", tmp_path) as open_:
            assert isinstance(open_.launcher, TemplateLauncher)
            facts = (await launch_and_report(open_)).facts
            assert int(facts["parent"]) == open_.launcher.template_pid
            assert thread_names(open_.launcher.template_pid) == {"yarrow-template"}
            modules = set(facts["modules"].split(","))
            assert {"numpy", "cloudpickle"} <= modules
            assert "pyarrow" not in modules, "only workers of jobs with columns load it"

    run(body())


def test_children_of_one_template_draw_different_numbers(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher("fork", "report", tmp_path) as open_:
            facts = [(await launch_and_report(open_, number)).facts for number in range(3)]
            assert len({each["random"] for each in facts}) == 3
            assert len({each["numpy"] for each in facts}) == 3

    run(body())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("do", "end"),
    [
        ("segfault", WorkerExit(signal=signal.SIGSEGV)),
        ("sys.exit", WorkerExit(status=5)),
        ("raise", WorkerExit(status=1)),
        ("thread", WorkerExit(status=3)),
        ("raw", WorkerExit(status=3)),
    ],
)
def test_the_end_of_a_worker_is_told(start_mode: str, do: str, end: WorkerExit, tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher(start_mode, "misbehave", tmp_path) as open_:
            peer = await launch(open_)
            peer.channel.send(start_message(do=do))
            assert await within(peer.worker.exited) == end
            # Nor a copy of the worker's end: the supervisor would wait for ever.
            await eventually(lambda: bool(peer.closed), "the socket reached its end")
            raw = open_.raw_path.read_text()
            expected = {
                "segfault": "Segmentation fault",
                "raise": "RuntimeError: not today",
                "raw": "from C\nan error\n",
            }
            assert expected.get(do, "") in raw

    run(body())


@pytest.mark.slow
def test_stop_and_kill(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher(start_mode, "report", tmp_path) as open_:
            stopped, killed = await launch_and_report(open_, 1), await launch_and_report(open_, 2)
            stopped.channel.send(StopWorker())
            killed.worker.kill()
            assert await within(stopped.worker.exited) == WorkerExit(status=7)
            assert await within(killed.worker.exited) == WorkerExit(signal=signal.SIGKILL)
            killed.worker.kill()

    run(body())


@pytest.mark.slow
def test_a_worker_sees_the_end_of_its_supervisor(start_mode: str, tmp_path: Path) -> None:
    """No other worker, and not the template, may hold a copy of the supervisor's end."""

    async def body() -> None:
        async with open_launcher(start_mode, "report", tmp_path) as open_:
            peer, other = await launch_and_report(open_, 1), await launch_and_report(open_, 2)
            peer.channel.close()
            assert await within(peer.worker.exited) == WorkerExit(status=0)
            assert process_runs(other.worker.pid)

    run(body())


@pytest.mark.slow
def test_a_template_that_dies_takes_its_workers_along_and_is_replaced(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher("fork", "report", tmp_path) as open_:
            assert isinstance(open_.launcher, TemplateLauncher)
            peer = await launch_and_report(open_)
            first = open_.launcher.template_pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            end = await within(peer.worker.exited)
            assert str(end) == "ended (its template process has ended)"
            await eventually(lambda: not process_runs(peer.worker.pid), "the worker died with its template")
            again = await launch_and_report(open_, 1)
            assert int(again.facts["parent"]) == open_.launcher.template_pid != first

    run(body())


def test_closing_the_launcher_ends_template_and_workers(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher(start_mode, "misbehave", tmp_path) as open_:
            peer = await launch(open_)
            peer.channel.send(start_message(do="hang"))
            pids = [peer.worker.pid, *(pid for _, pid in open_.launcher.processes())]
            await open_.launcher.close()
            await eventually(lambda: not any(map(process_runs, pids)), f"{pids} ended")

    run(body())


def test_a_launch_under_way_starts_no_template_that_nobody_would_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher("fork", "report", tmp_path) as open_:
            launcher = open_.launcher
            assert isinstance(launcher, TemplateLauncher)
            pending = asyncio.ensure_future(
                launcher.launch(WorkerID("te/0"), "yarrow-slot-0", open_.raw_output)
            )
            await asyncio.sleep(0)
            assert not pending.done()
            await launcher.close()
            with pytest.raises(WorkerStartError, match="ends"):
                await pending
            assert launcher.template_pid is None

    run(body())


def test_a_launcher_takes_over_a_template_that_was_executed_before_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher("spawn", "report", tmp_path) as open_:
            settings = launch_settings("report")
            executed = execute_template(settings, open_.raw_output)
            launcher = TemplateLauncher(settings, open_.raw_output, executed)
            await launcher.start()
            assert launcher.template_pid == executed.process.pid
            peer = await launch_and_report(OpenLauncher(launcher, open_.raw_output, open_.raw_path))
            assert int(peer.facts["parent"]) == executed.process.pid
            await launcher.close()
            assert executed.process.returncode is not None

    run(body())


def test_closing_a_launcher_that_never_started_ends_the_template_it_was_given(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher("spawn", "report", tmp_path) as open_:
            settings = launch_settings("report")
            executed = execute_template(settings, open_.raw_output)
            await TemplateLauncher(settings, open_.raw_output, executed).close()
            assert executed.process.returncode is not None
            assert executed.control.fileno() == -1

    run(body())


@pytest.mark.slow
def test_a_template_that_cannot_import_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_launcher("fork", "report", tmp_path) as open_:
            settings = launch_settings("report")
            broken = type(settings)(entry="no_such_module:main", environment=settings.environment)
            launcher = TemplateLauncher(broken, open_.raw_output)
            with pytest.raises(Exception, match=r"cannot import the engine: .*'no_such_module'\. Repair"):
                await within(launcher.launch(WorkerID("te/1"), "x", open_.raw_output))
            await launcher.close()
            assert "No module named 'no_such_module'" in open_.raw_path.read_text()

    run(body())


@pytest.mark.slow
def test_a_template_that_ends_by_another_error_may_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "without_memory.py").write_text("raise MemoryError")

    async def body() -> None:
        async with open_launcher("fork", "report", tmp_path) as open_:
            failing = type(launch_settings("report"))(
                entry="without_memory:main", environment={"PYTHONPATH": str(tmp_path)}
            )
            launcher = TemplateLauncher(failing, open_.raw_output)
            with pytest.raises(TemplateLostError, match="template process ended before it forked"):
                await within(launcher.launch(WorkerID("te/1"), "x", open_.raw_output))
            await launcher.close()
            assert "MemoryError" in open_.raw_path.read_text()

    run(body())


def test_a_killed_supervisor_leaves_no_process(start_mode: str, tmp_path: Path) -> None:
    """The supervisor dies by SIGKILL while its worker hangs in a call and would never look at its socket."""
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.unit.container.supervisor.conftest import open_launcher\n"
        "from tests.unit.container.supervisor.test_worker_start import launch, start_message\n"
        "async def main() -> None:\n"
        f"    async with open_launcher({start_mode!r}, 'misbehave', Path({str(tmp_path)!r})) as open_:\n"
        "        peer = await launch(open_)\n"
        "        peer.channel.send(start_message(do='hang'))\n"
        "        print(peer.worker.pid, *(pid for _, pid in open_.launcher.processes()), flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )

    async def body() -> None:
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        with process:
            assert process.stdout is not None
            pids = [int(pid) for pid in process.stdout.readline().split()]
            assert pids and all(map(process_runs, pids))
            process.kill()
        await eventually(lambda: not any(map(process_runs, pids)), f"{pids} ended")

    run(body())


def test_thread_counts_follow_the_cores_of_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("POLARS_MAX_THREADS", "9")
    environment = worker_environment(launch_settings("report", cpu_cores=2.5))
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["MALLOC_ARENA_MAX"] == "6"
    assert environment["POLARS_MAX_THREADS"] == "9"
