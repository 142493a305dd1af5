"""LocalProcessDriver with real child processes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.control.control_cluster import eventually
from tests.support.counting_ids import CountingIdFactory
from tests.unit.runtime.rpc.loops import run
from yarrow.am.resourcemanager.driver import TaskExecutorStartError
from yarrow.am.resourcemanager.local_process_driver import LocalProcessDriver, LocalProcessSettings
from yarrow.runtime.common.child_process import ChildProcess
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.messages import ResourceProfile

pytestmark = pytest.mark.cluster

SECRET = b"do not show this to anybody at all"


class Ended:
    """Notes what the driver tells."""

    def __init__(self) -> None:
        self.causes: dict[ResourceID, str] = {}

    def on_task_executor_terminated(self, resource_id: ResourceID, cause: str) -> None:
        self.causes[resource_id] = cause

    def on_task_executors_delayed(self, explanation: str) -> None:
        raise AssertionError("processes of this host are not waited for")


@asynccontextmanager
async def driving(
    directory: Path, *arguments: str, command: str = sys.executable, grace: float = 60.0
) -> AsyncIterator[tuple[LocalProcessDriver, Ended]]:
    (directory / "tmp").mkdir()
    settings = LocalProcessSettings(
        application_id="app",
        log_directory=str(directory / "log"),
        tmp_directory=str(directory / "tmp"),
        configuration={"a": "b"},
        data_secret=SECRET,
        slots_per_task_executor=3,
        command=(command, str(Path(__file__).with_name("child.py")), *arguments),
        grace=grace,
    )
    driver = LocalProcessDriver(settings, lambda name: PemIdentity(private_key=SECRET), CountingIdFactory())
    ended = Ended()
    await driver.initialize(ended, LeaderInformation(address="grpc://h:1/resourcemanager", leader_id="rm"))
    try:
        yield driver, ended
    finally:
        await driver.terminate()
        assert driver.processes == {}
        assert os.listdir(directory / "tmp") == []


def test_children_get_their_bootstrap_by_pipe_alone_and_end_with_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with driving(tmp_path, "wait") as (driver, ended):
            names = [await driver.request_task_executor(ResourceProfile()) for _ in range(2)]
            notes = [tmp_path / "log" / name.replace(":", "_") for name in names]
            await eventually(lambda: all(note.exists() and note.read_text() for note in notes))
            address, working_directory, slots = notes[0].read_text().splitlines()
            assert (address, slots) == ("grpc://h:1/resourcemanager", "3")
            assert os.stat(working_directory).st_mode & 0o777 == 0o700
            for pid in driver.processes.values():
                process = psutil.Process(pid)
                assert os.getsid(pid) == pid
                assert SECRET.decode() not in " ".join(process.cmdline())
                assert SECRET.decode() not in str(process.environ())
            await driver.release_task_executor(names[0])
            assert set(driver.processes) == {names[1]}
            assert ended.causes == {names[0]: "released (exit status 0)"}
            await driver.release_task_executor(ResourceID("unknown"))

    run(body())


def test_a_child_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    async def body() -> None:
        async with driving(tmp_path, "exit", "7") as (driver, ended):
            name = await driver.request_task_executor(ResourceProfile())
            await eventually(lambda: name in ended.causes)
            assert "exit status 7" in ended.causes[name]
            assert "last words" in ended.causes[name]

    run(body())


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    async def body() -> None:
        async with driving(tmp_path, "ignore", grace=0.2) as (driver, ended):
            name = await driver.request_task_executor(ResourceProfile())
            note = tmp_path / "log" / name.replace(":", "_")
            await eventually(lambda: note.exists() and bool(note.read_text()))
            await driver.release_task_executor(name)
            assert ended.causes[name] == "released (killed by SIGKILL)"

    run(body())


class HeldThreads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`: they begin nothing before `go_on`."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.waiting = 0
        self._gate = threading.Event()
        super().submit(self._gate.wait)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting += 1
        return super().submit(fn, *args, **kwargs)

    def go_on(self) -> None:
        self._gate.set()


@contextmanager
def held_threads() -> Iterator[HeldThreads]:
    threads = HeldThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    try:
        yield threads
    finally:
        threads.go_on()


async def pass_on() -> None:
    """Lets tasks that can go on reach the next thing that they wait for."""
    for _ in range(20):
        await asyncio.sleep(0)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_release_that_is_cancelled_leaves_the_end_of_its_child_to_others(tmp_path: Path) -> None:
    async def body() -> None:
        async with driving(tmp_path, "wait") as (driver, ended):
            name = await driver.request_task_executor(ResourceProfile())
            with held_threads() as threads:
                # The child has ended, and the thread that describes its end does not come to it.
                release = asyncio.create_task(driver.release_task_executor(name))
                await eventually(lambda: threads.waiting == 1)
                await pass_on()
                await cancelled(release)
            await driver.terminate()
            assert ended.causes == {name: "released (exit status 0)"}

    run(body())


def test_a_request_that_is_cancelled_leaves_its_process_to_the_end_of_the_driver(tmp_path: Path) -> None:
    async def body() -> None:
        # Other tests of the process may share a broker or a cluster.
        others = set(psutil.Process().children())
        async with driving(tmp_path, "wait") as (driver, _):
            await driver.warm_up()
            children = set(psutil.Process().children()) - others
            with held_threads() as threads:
                request = asyncio.create_task(driver.request_task_executor(ResourceProfile()))
                await eventually(lambda: threads.waiting == 1)
                await cancelled(request)
            await driver.terminate()
            assert children and not [child for child in children if child.is_running()]

    run(body())


def test_an_end_that_is_cancelled_behind_its_kill_leaves_the_end_to_others(tmp_path: Path) -> None:
    async def body() -> None:
        command = (sys.executable, "-c", "import time; time.sleep(600)")
        child = await ChildProcess.start(command, tmp_path / "child.err")

        def is_cancelled() -> bool:
            ending.cancel()
            return False

        ending = asyncio.create_task(child.end(0.01, is_cancelled, longest=60.0))
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert await child.wait() == "released (killed by SIGKILL)"

    run(body())


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        async with driving(tmp_path, "wait", command="/nonexistent/python") as (driver, _):
            with pytest.raises(TaskExecutorStartError, match="/nonexistent/python"):
                await driver.request_task_executor(ResourceProfile())

    run(body())
