"""LocalProcessDriver with real child processes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.cluster.control.control_cluster import eventually
from tests.support.counting_ids import CountingIdFactory
from tests.unit.runtime.rpc.loops import run
from yarrow.am.resourcemanager.driver import TaskExecutorStartError
from yarrow.am.resourcemanager.local_process_driver import LocalProcessDriver, LocalProcessSettings
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


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        async with driving(tmp_path, "wait", command="/nonexistent/python") as (driver, _):
            with pytest.raises(TaskExecutorStartError, match="/nonexistent/python"):
                await driver.request_task_executor(ResourceProfile())

    run(body())
