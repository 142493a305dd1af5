"""New delegation tokens for the Python processes of an executor: from the driver's hands into the file of tokens."""

from __future__ import annotations

import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.unit.container.batch.spark.tasks.test_driver_address import Heard, job
from yarrow.container.batch.driver.newest_tokens import NewestTokens, NumberedTokens
from yarrow.container.batch.driver.task_messages import TokensSent, TokensWanted, ToTaskMessage
from yarrow.container.batch.spark.task_server import AttemptListener, EntranceForOtherHosts, TaskServer, _shut
from yarrow.container.batch.spark.tasks import executor_tokens
from yarrow.container.batch.spark.tasks.driver_address import DriverAddress, DriverOnThisHost
from yarrow.container.batch.spark.tasks.executor_tokens import _follow, follow_tokens
from yarrow.container.protocol.framing import HEADER, FramedSocket
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
    server = TaskServer(entrance, cast(AttemptListener, Heard()), NewestTokens())
    server.start()
    try:
        follow_tokens(entrance.address)
        assert file.stat().st_mtime_ns == before
    finally:
        server.close()


def ends(entrance: EntranceForOtherHosts) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection with TLS: the driver's and the task's."""
    with ThreadPoolExecutor(1) as other:
        connecting = other.submit(entrance.address.connect)
        admitted = entrance.admit(entrance.server.accept()[0])
        return admitted, connecting.result(LIMIT)


def test_the_end_of_a_run_leaves_tls_on_and_each_end_notices_a_vanished_host() -> None:
    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", job(), SystemClock())
    with entrance.server:
        own, task = ends(entrance)
        with own, task:
            for each in (own, task):
                assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            _shut(own)
            # Without TLS a thread that sends a secret at this moment would send it in plain.
            assert cast(Any, own).version() == "TLSv1.3"
            assert task.recv(1) == b""


def test_tokens_that_come_at_the_end_of_a_run_are_not_sent() -> None:
    class Late(NewestTokens):
        def wait_for_newer(self, number: int, seconds: float) -> NumberedTokens | None:
            server.close()
            return NumberedTokens(number + 1, b"a secret")

    class Frames:
        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def send(self, message: TokensSent) -> None:
            self.sent.append(message.content)

    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", job(), SystemClock())
    server = TaskServer(entrance, cast(AttemptListener, Heard()), Late())
    own, other = socket.socketpair()
    frames = Frames()
    with own, other:
        server._send_tokens(cast(Any, frames), own)
    assert frames.sent == [b""]


def test_the_driver_closes_the_connection_of_a_process_that_has_ended() -> None:
    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", job(), SystemClock())
    server = TaskServer(entrance, cast(AttemptListener, Heard()), NewestTokens())
    server.start()
    try:
        decoder: msgspec.msgpack.Decoder[ToTaskMessage] = msgspec.msgpack.Decoder(ToTaskMessage)
        frames = FramedSocket(entrance.address.connect(), decoder)
        frames.send(TokensWanted())
        assert frames.receive() == TokensSent(content=b"")
        assert server._open
        frames.close()
        pause = threading.Event()
        for _ in range(int(LIMIT * 100)):
            if not server._open:
                return
            pause.wait(0.01)
        raise AssertionError("it stays open until the run ends")
    finally:
        server.close()


class Breaking:
    """The address of a driver with whom the first connection breaks, or cannot be made."""

    is_elsewhere = True

    def __init__(self, driver: DriverAddress, how: str) -> None:
        self._driver = driver
        self._how = how
        self.asked = 0
        #: The driver's end of the first one, which stays open for the question.
        self.end: socket.socket | None = None

    def connect(self) -> socket.socket:
        self.asked += 1
        if self.asked > 1:
            return self._driver.connect()
        if self._how == "refuses":
            raise ConnectionRefusedError("nobody listens")
        own, self.end = socket.socketpair()
        if self._how == "closes":
            self.end.shutdown(socket.SHUT_WR)
            return own
        body = msgspec.msgpack.encode(TokensSent(content=b""))
        self.end.sendall(HEADER.pack(len(body)) + body + HEADER.pack(9))
        self.end.shutdown(socket.SHUT_WR)
        return own


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("answers", "broke: the connection ended inside a frame"),
        ("refuses", "not known yet: nobody listens"),
        (
            "closes",
            "not known yet: the driver closed the connection for delegation tokens before it answered",
        ),
    ],
)
def test_a_connection_that_breaks_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str, told: str
) -> None:
    monkeypatch.setattr(executor_tokens, "_FIRST_PAUSE_SECONDS", 0.01)
    file = tmp_path / "container_tokens"
    file.write_bytes(written_tokens([token(b"of the start")]))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))
    tokens = NewestTokens()
    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", job(), SystemClock())
    server = TaskServer(entrance, cast(AttemptListener, Heard()), tokens)
    server.start()
    breaking = Breaking(entrance.address, how)
    try:
        with caplog.at_level(logging.WARNING):
            follow_tokens(cast(DriverAddress, breaking))
            tokens.put(written_tokens([token(b"newer")]))
            until_file_has(file, token(b"newer"))
    finally:
        server.close()
        if breaking.end is not None:
            breaking.end.close()
    assert breaking.asked == 2
    assert told in caplog.text


def test_a_driver_that_answers_no_more_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_tokens, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(executor_tokens, "_ASK_SECONDS", 0.1)
    entrance = EntranceForOtherHosts("127.0.0.1", "127.0.0.1", job(), SystemClock())
    entrance.server.close()
    with caplog.at_level(logging.WARNING):
        _follow(entrance.address, None)
    assert "no newer delegation tokens will come" in caplog.text


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
