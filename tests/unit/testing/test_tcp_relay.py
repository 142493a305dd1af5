"""TcpRelay: bytes pass, a cut holds them back without a word, and what has waited comes afterwards."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from yarrow.testing.tcp_relay import Direction, TcpRelay

#: Seconds in which nothing has to come before it counts as held back.
SILENCE = 0.4


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that answers with what it hears."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=[connection], daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            while read := connection.recv(4096):
                connection.sendall(read)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[:2]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def connect(relay: TcpRelay) -> socket.socket:
    host, _, port = relay.address.partition(":")
    return socket.create_connection((host, int(port)), 5.0)


def test_bytes_pass_and_an_end_is_handed_on(echo: tuple[str, int]) -> None:
    with TcpRelay(echo) as relay, connect(relay) as client:
        sender = threading.Thread(target=client.sendall, args=[b"x" * 300_000])
        sender.start()
        received = 0
        while received < 300_000:
            received += len(client.recv(65536))
        sender.join()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


@pytest.mark.parametrize("direction", [Direction.TO_SERVER, Direction.TO_CLIENT, Direction.BOTH])
def test_a_cut_is_silent_and_what_has_waited_comes(echo: tuple[str, int], direction: Direction) -> None:
    with TcpRelay(echo) as relay, connect(relay) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        assert relay.connected_pids() == {os.getpid()}
        relay.cut(direction=direction)
        client.sendall(b"b")
        client.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            client.recv(1)
        relay.heal()
        client.settimeout(60.0)
        assert client.recv(1) == b"b"


def test_one_process_is_cut_off_and_others_are_not(echo: tuple[str, int]) -> None:
    with TcpRelay(echo) as relay, connect(relay) as client:
        relay.cut([os.getppid()])
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        relay.cut([os.getpid()])
        with connect(relay) as another:
            another.settimeout(SILENCE)
            another.sendall(b"c")
            with pytest.raises(TimeoutError):
                another.recv(1)


@pytest.mark.parametrize("direction", [Direction.TO_SERVER, Direction.TO_CLIENT])
def test_a_cut_at_what_is_sent(echo: tuple[str, int], direction: Direction) -> None:
    with TcpRelay(echo) as relay, connect(relay) as client:
        relay.cut_at(b"secret", [os.getpid()], direction)
        client.sendall(b"other")
        assert client.recv(5) == b"other"
        cut = [relay.is_cut]
        client.sendall(b"a secret")
        client.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            client.recv(1)
        cut.append(relay.is_cut)
        assert cut == [False, True]
        relay.heal()
        client.settimeout(60.0)
        assert client.recv(8) == b"a secret"


def test_a_reset_ends_what_is_connected(echo: tuple[str, int]) -> None:
    with TcpRelay(echo) as relay, connect(relay) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        relay.reset()
        assert client.recv(1) == b""
        with connect(relay) as another:
            another.sendall(b"b")
            assert another.recv(1) == b"b"


def test_without_its_server_connections_end() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()[:2]
    with TcpRelay(nobody) as relay, connect(relay) as client:
        assert client.recv(1) == b""
