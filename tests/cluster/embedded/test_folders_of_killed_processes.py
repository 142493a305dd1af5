"""Temporary folders of a standalone cluster: those of killed processes go with the next, all go with an orderly end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.support.free_ports import free_port
from yarrow.runtime.fs.client_folder import STANDALONE_MASTER, WORKING_DIRECTORY_PREFIX

pytestmark = pytest.mark.cluster

ROLES = {"jobmanager": STANDALONE_MASTER, "taskmanager": WORKING_DIRECTORY_PREFIX}


class Processes:
    """One master and one TaskExecutor, started as often as wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        for path in (self.temporary, folder / "conf"):
            path.mkdir()
        self._left = ExitStack()
        lines: dict[str, object] = {
            "env.pid.dir": folder / "pids",
            "jobmanager.rpc.port": free_port(),
            "rest.port": free_port(),
            "jobmanager.bind-host": "localhost",
            "taskmanager.bind-host": "localhost",
        }
        (folder / "conf" / "config.yaml").write_text(
            "".join(f"{key}: {value}\n" for key, value in lines.items())
        )

    def start(self) -> dict[str, subprocess.Popen[bytes]]:
        """Returns when each has a folder of its own, and the TaskExecutor runs in its."""
        before = self.folders()
        started = {role: self.start_one(role) for role in ROLES}
        for prefix in ROLES.values():
            wait_until(partial(self._has_new, prefix, before), self.logs)
        wait_until(partial(self._leads, started["jobmanager"].pid), self.logs)
        launcher = psutil.Process(started["taskmanager"].pid)
        wait_until(lambda: len(launcher.children(recursive=True)) > 1, self.logs)
        return started

    def start_one(self, role: str) -> subprocess.Popen[bytes]:
        """Returns at once."""
        own = {"YARROW_CONF_DIR": str(self.folder / "conf"), "TMPDIR": str(self.temporary)}
        with (self.folder / f"{role}.log").open("ab") as log:
            process = self._left.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "yarrow.cli.main", role],
                    env={**os.environ, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
        self._left.callback(process.kill)
        return process

    def _leads(self, pid: int) -> bool:
        for path in self.folder.glob("pids/*/leader.*.json"):
            # The next master removes the announcement of a former one.
            with suppress(FileNotFoundError):
                if f'"pid":{pid}' in path.read_text():
                    return True
        return False

    def _has_new(self, prefix: str, before: set[str]) -> bool:
        return any(name.startswith(prefix) for name in self.folders() - before)

    def folders(self) -> set[str]:
        return {path.name for path in self.temporary.iterdir()}

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.folder.glob("*.log"))

    def close(self) -> None:
        self._left.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.close()


def test_folders_of_killed_processes_go_with_the_next_and_all_with_an_orderly_end(
    processes: Processes,
) -> None:
    first = processes.start()
    former = processes.folders()
    assert sorted(name.rpartition("-")[0] + "-" for name in former) == sorted(ROLES.values())
    launcher = psutil.Process(first["taskmanager"].pid)
    # As if all at once: nobody is left to remove anything.
    launcher.suspend()
    for process in [*launcher.children(recursive=True), launcher]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    first["jobmanager"].kill()
    for ended in first.values():
        ended.wait(120)
    assert processes.folders() == former

    second = processes.start()
    assert not former & processes.folders()
    for process in second.values():
        process.send_signal(signal.SIGTERM)
    assert [process.wait(120) for process in second.values()] == [0, 0], processes.logs()
    assert processes.folders() == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_master_that_is_told_to_end_while_it_starts_ends_in_order(
    processes: Processes, number: signal.Signals
) -> None:
    master = processes.start_one("jobmanager")
    wait_until(lambda: bool(processes.folders()), processes.logs)
    master.send_signal(number)
    assert master.wait(120) == 0, processes.logs()
    assert processes.folders() == set()
    assert not [*processes.folder.glob("pids/*/leader.*.json")], "nobody is announced as the leader"
    assert f"it got the signal {number.name}" in processes.logs()


def test_a_task_executor_that_is_told_to_end_while_it_starts_ends_in_order(processes: Processes) -> None:
    processes.start_one("jobmanager")
    wait_until(lambda: bool([*processes.folder.glob("pids/*/leader.*.json")]), processes.logs)
    masters = processes.folders()
    parent = processes.start_one("taskmanager")
    wait_until(lambda: processes.folders() != masters, processes.logs)
    parent.terminate()
    assert parent.wait(120) == 0, processes.logs()
    assert processes.folders() == masters
