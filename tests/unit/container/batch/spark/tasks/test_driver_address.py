"""Tasks on other hosts: they prove themselves to their driver and it to them, and get their job through it."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.driver.shared_job import SharedJob
from yarrow.container.batch.driver.task_messages import AttemptAt, AttemptEnded, AttemptStarted
from yarrow.container.batch.spark.task_server import AttemptListener, EntranceForOtherHosts, TaskServer
from yarrow.container.batch.spark.tasks.driver_address import DriverElsewhere, JobNotSentError
from yarrow.container.protocol.framing import encode_frame
from yarrow.runtime.common.clock import SystemClock

LIMIT = 60.0
STARTED = AttemptStarted(run=3, stage=0, subtask=1, attempt=0, pid=7)


class Heard:
    """What a driver hears of its tasks."""

    def __init__(self) -> None:
        self.started: list[AttemptStarted] = []
        self.last: Any = None
        self.ended = threading.Event()

    def attempt_started(self, started: AttemptStarted) -> None:
        self.started.append(started)

    def attempt_progressed(self, started: AttemptStarted, progress: Any) -> None:
        self.last = progress
        self.ended.set()

    def attempt_lost(self, started: AttemptStarted, last: AttemptAt | None) -> None:
        self.ended.set()


def job(**files: Path) -> SharedJob:
    return SharedJob(
        run=3,
        job_graph=b"graph" * 1000,
        plan=b"plan",
        configuration={"a": "b"},
        task_folder="/of/the/driver",
        file_paths={key: str(path) for key, path in files.items()},
        splits={},
        result_key=b"key",
    )


@contextmanager
def serving(shared: SharedJob) -> Iterator[tuple[DriverElsewhere, Heard]]:
    heard = Heard()
    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", shared, SystemClock())
    server = TaskServer(entrance, cast(AttemptListener, heard), NewestTokens())
    server.start()
    try:
        # As Spark brings it.
        yield pickle.loads(pickle.dumps(cast(DriverElsewhere, entrance.address))), heard
    finally:
        server.close()


def test_a_task_gets_its_job_and_files_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "executor"))
    (tmp_path / "executor").mkdir()
    large, empty = tmp_path / "large", tmp_path / "empty"
    large.write_bytes(os.urandom((4 << 20) + 5))
    empty.touch()
    keys = {"a" * 64: large, "b" * 64: empty}
    with serving(job(**keys)) as (driver, heard):
        loaded = driver.load()
        for key, path in keys.items():
            found = Path(loaded.file_paths[key])
            assert found.read_bytes() == path.read_bytes()
            assert found.parent.parent == tmp_path / "executor", "it goes with the executor"
            assert found.parent.stat().st_mode & 0o077 == 0
        assert loaded.task_folder.startswith(str(tmp_path / "executor"))
        own = {"file_paths": {}, "task_folder": ""}
        assert msgspec.structs.replace(loaded, **own) == msgspec.structs.replace(job(), **own)
        connection = driver.connect()
        connection.sendall(encode_frame(STARTED) + encode_frame(AttemptEnded(records_in=1, records_out=2)))
        assert heard.ended.wait(LIMIT)
        assert heard.started == [STARTED]
        connection.close()


def test_what_a_task_sends_before_it_closes_arrives(tmp_path: Path) -> None:
    with serving(job()) as (driver, heard):
        for _ in range(20):
            heard.ended.clear()
            heard.last = None
            connection = driver.connect()
            ended = AttemptEnded(records_in=1, records_out=2)
            connection.sendall(encode_frame(STARTED) + encode_frame(ended))
            connection.close()
            assert heard.ended.wait(LIMIT)
            assert heard.last == ended, "it is not lost"


def test_who_has_no_certificate_of_the_run_is_not_heard() -> None:
    with serving(job()) as (driver, heard), serving(job()) as (other, _):
        # Another run's task: its authority is another.
        stranger = msgspec.structs.replace(driver.identity, certificate=other.identity.certificate)
        stranger = msgspec.structs.replace(stranger, private_key=other.identity.private_key)
        with pytest.raises((OSError, JobNotSentError)):
            DriverElsewhere(driver.host, driver.port, 3, stranger).load()
        with socket.create_connection((driver.host, driver.port), LIMIT) as plain:
            plain.sendall(encode_frame(STARTED))
            plain.settimeout(LIMIT)
            with contextlib.suppress(ConnectionResetError):
                while plain.recv(1 << 16):
                    pass
        assert heard.started == []


def test_a_task_does_not_talk_to_another_driver() -> None:
    with serving(job()) as (driver, _), serving(job()) as (other, heard):
        with pytest.raises(ssl.SSLCertVerificationError):
            DriverElsewhere(other.host, other.port, 3, driver.identity).connect()
        assert heard.started == []
