"""New delegation tokens for the Python processes of an executor: from the driver's hands into the file of tokens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from tests.unit.container.batch.spark.tasks.test_driver_address import Heard, job
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.spark.task_server import AttemptListener, EntranceForOtherHosts, TaskServer
from yarrow.container.batch.spark.tasks.driver_address import DriverOnThisHost
from yarrow.container.batch.spark.tasks.executor_tokens import follow_tokens
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, TOKEN_FILE_VARIABLE, HadoopToken, read_tokens
from yarrow.runtime.fs.token_files import written_tokens

LIMIT = 60.0


def token(password: bytes) -> HadoopToken:
    return HadoopToken(HDFS_KIND, "namenode:8020", b"identifier", password)


def until_file_has(path: Path, expected: HadoopToken) -> None:
    pause = threading.Event()
    for _ in range(int(LIMIT * 100)):
        if [each.password for each in read_tokens(path)] == [expected.password]:
            return
        pause.wait(0.01)
    raise AssertionError("the newer token does not come")


def test_a_process_elsewhere_gets_the_newest_tokens_and_each_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "container_tokens"
    file.write_bytes(written_tokens([token(b"of the start")]))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))
    tokens = NewestTokens()
    tokens.put(written_tokens([token(b"first")]))
    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", job(), SystemClock())
    server = TaskServer(entrance, cast(AttemptListener, Heard()), tokens)
    server.start()
    try:
        follow_tokens(entrance.address)
        # At once: the tokens of the start may have ended.
        assert [each.password for each in read_tokens(file)] == [b"first"]
        tokens.put(written_tokens([token(b"second")]))
        until_file_has(file, token(b"second"))
        assert server.await_tasks(LIMIT), "nobody waits for such a connection"
    finally:
        server.close()


def test_a_driver_without_newer_tokens_leaves_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "container_tokens"
    file.write_bytes(written_tokens([token(b"of the start")]))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))
    before = file.stat().st_mtime_ns
    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", job(), SystemClock())
    server = TaskServer(entrance, cast(AttemptListener, Heard()))
    server.start()
    try:
        follow_tokens(entrance.address)
        assert file.stat().st_mtime_ns == before
    finally:
        server.close()


def test_a_task_on_the_drivers_host_asks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(tmp_path / "container_tokens"))
    # Nobody listens there: a question would fail.
    follow_tokens(DriverOnThisHost(str(tmp_path)))


def test_the_same_tokens_again_are_not_newer() -> None:
    tokens = NewestTokens()
    tokens.put(b"a")
    number = tokens.newest.number
    tokens.put(b"a")
    assert tokens.wait_for_newer(number, 0.0) is None
    tokens.put(b"b")
    newer = tokens.wait_for_newer(number, LIMIT)
    assert newer is not None and newer.content == b"b"
