"""The socket source: lines over packets, the end, reconnection, and what is no text."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.unit.datastream.connectors.harness import SourceHarness
from yarrow.datastream.connectors.base import NothingAvailable, Replay
from yarrow.datastream.connectors.socket.socket_text_source import SocketSourceError, SocketTextSource


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def poll_until(harness: SourceHarness, count: int) -> None:
    for _ in range(100):
        if len(harness.rows) >= count:
            return
        harness.poll()
    raise AssertionError(f"only {harness.rows} after 100 polls")


def test_lines_are_put_together_and_the_end_ends(server: socket.socket) -> None:
    harness = SourceHarness(SocketTextSource("127.0.0.1", server.getsockname()[1]))
    harness.poll()
    connection, _ = server.accept()
    with connection:
        connection.sendall("one\r\ntwo\nthr\u00e9".encode())
        poll_until(harness, 2)
        assert isinstance(harness.poll(), NothingAvailable)
        connection.sendall(b"e\nlast")
    poll_until(harness, 4)
    assert harness.rows == ["one", "two", "thr\u00e9e", "last"]
    assert harness.run() == ["one", "two", "thr\u00e9e", "last"]
    harness.close()


def test_a_lost_connection_is_tried_again(server: socket.socket) -> None:
    harness = SourceHarness(SocketTextSource("127.0.0.1", server.getsockname()[1], max_retry=1))
    for line in (b"one\n", b"two\n"):
        harness.poll()
        connection, _ = server.accept()
        with connection:
            connection.sendall(line)
        poll_until(harness, 1 if line == b"one\n" else 2)
        while (found := harness.poll()) == NothingAvailable(0.0):
            pass
        assert found == NothingAvailable(0.5)
    harness.close()


def test_no_server_is_an_error_that_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    harness = SourceHarness(SocketTextSource("127.0.0.1", port))
    with pytest.raises(SocketSourceError, match=f"{port}.*start the server"):
        harness.poll()


def test_what_is_no_text_is_refused(server: socket.socket) -> None:
    harness = SourceHarness(SocketTextSource("127.0.0.1", server.getsockname()[1]))
    harness.poll()
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"\xff\n")
        with pytest.raises(SocketSourceError, match="not UTF-8"):
            poll_until(harness, 1)
    harness.close()


def test_it_cannot_be_replayed() -> None:
    source = SocketTextSource("localhost", 9999)
    assert source.blocking
    assert source.replay is Replay.NONE
    with pytest.raises(ValueError, match="port"):
        SocketTextSource("localhost", 0)
