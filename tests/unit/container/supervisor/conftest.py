"""Fixtures of the supervisor's tests: launchers of fake workers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from yarrow.container.launch.process_start import LaunchSettings
from yarrow.container.launch.template_client import TemplateLauncher
from yarrow.container.launch.worker_launcher import SpawnLauncher, WorkerLauncher

ROOT = Path(__file__).resolve().parents[4]
#: Seconds within which what has to happen happens, on a busy machine.
DEADLINE = 180.0
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs one test's coroutine; a test that hangs fails."""
    return asyncio.run(asyncio.wait_for(main, 2 * DEADLINE))


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Returns when the condition holds; fails naming `what` at the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE
    while not condition():
        assert loop.time() < end, f"not within {DEADLINE} s: {what}"
        await asyncio.sleep(0.01)


async def within(awaitable: Awaitable[T]) -> T:
    """The result, within the deadline."""
    return await asyncio.wait_for(awaitable, DEADLINE)


def process_runs(pid: int) -> bool:
    """False when the process is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def launch_settings(entry: str, cpu_cores: float = 1.0) -> LaunchSettings:
    """Settings under which `worker_mains` is found."""
    return LaunchSettings(
        cpu_cores=cpu_cores,
        entry=f"tests.unit.container.supervisor.worker_mains:{entry}",
        environment={"PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(params=["fork", "spawn"])
def start_mode(request: pytest.FixtureRequest) -> str:
    """Both ways to get a worker process."""
    return str(request.param)


class OpenLauncher:
    """A launcher with the raw output file of its workers."""

    def __init__(self, launcher: WorkerLauncher, raw_output: int, raw_path: Path) -> None:
        self.launcher = launcher
        self.raw_output = raw_output
        self.raw_path = raw_path


@asynccontextmanager
async def open_launcher(mode: str, entry: str, folder: Path) -> AsyncIterator[OpenLauncher]:
    """A started launcher, closed at the end."""
    path = folder / "raw.err"
    raw_output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    settings = launch_settings(entry)
    launcher: WorkerLauncher = (
        TemplateLauncher(settings, raw_output) if mode == "fork" else SpawnLauncher(settings)
    )
    try:
        await launcher.start()
        yield OpenLauncher(launcher, raw_output, path)
    finally:
        await launcher.close()
        os.close(raw_output)
