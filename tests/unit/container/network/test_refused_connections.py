"""A data connection that proves nothing is closed before anything is deserialized, and harms nobody."""

from __future__ import annotations

import contextlib
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from yarrow.container.network import data_sockets
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.frames import HEADER, MAGIC, FrameType, WireProtocolError, encode_header
from yarrow.container.network.handshake import Challenge, ClientHandshake, ServerHandshake
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.io_thread import IoThread
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.network.peer_channels import ChannelKey
from yarrow.container.network.unix_sockets import connect_unix
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.container.protocol.worker_protocol import WorkerSettings
from yarrow.runtime.common.clock import SystemClock, perf_counter
from yarrow.runtime.common.ids import ExecutionAttemptID, WorkerID
from yarrow.runtime.data.elements import EndOfData, RowBatch
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.rpc.messages import WorkerAddress
from yarrow.runtime.security.certificates import CertificateAuthority

SECRET = b"s" * 32
CODEC = ElementCodec(serializer_for(None))
KEY: ChannelKey = (ExecutionAttemptID("g_v_0_0"), 0, 0)
PRODUCER = ExecutionAttemptID("g_u_0_0")


class End:
    """The data plane of one worker."""

    def __init__(
        self,
        folder: Path,
        name: str,
        secret: bytes = SECRET,
        authority: CertificateAuthority | None = None,
        listen_tcp: bool = False,
        transport: str = "tcp",
    ) -> None:
        home = folder / name
        home.mkdir(mode=0o700)
        identity = authority.issue(name) if authority is not None else None
        self.io = IoThread()
        settings = WorkerSettings(
            worker_id=WorkerID(f"test/{name}"),
            resource_id="test",
            host="127.0.0.1",
            host_key="here",
            working_directory=str(home),
            configuration={"taskmanager.data.transport": transport} if authority is not None else {},
            data_secret=secret,
            listen_tcp=listen_tcp,
            ca_certificate=identity.ca_certificate if identity is not None else b"",
            certificate=identity.certificate if identity is not None else b"",
            private_key=identity.private_key if identity is not None else b"",
        )
        self.network = NetworkEnvironment(settings, self.io)
        self.address: WorkerAddress = self.network.start()
        self.io.start()

    def stop(self) -> None:
        if not self.io.is_alive():
            return
        self.network.stop()
        self.io.stop()
        self.io.join(120)


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition that another thread makes true; hands over the processor meanwhile."""
    import os

    deadline = perf_counter() + 60
    while not condition():
        assert perf_counter() < deadline, f"not within 60 s: {what}"
        os.sched_yield()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Callable[..., End]]:
    made: list[End] = []

    def make(*arguments: Any, **named: Any) -> End:
        made.append(End(tmp_path, *arguments, **named))
        return made[-1]

    yield make
    for end in made:
        end.stop()


def connect(address: WorkerAddress) -> socket.socket:
    sock = connect_unix(address.unix_path)
    sock.settimeout(120)
    return sock


def exchange_works(sender: End, receiver: End, key: ChannelKey = KEY) -> None:
    target = receiver.network.open_input(key, CODEC, 8, 1 << 20, lambda: None)
    channel = sender.network.open_output(key, PRODUCER, receiver.address, CODEC, lambda: None, False)
    until(lambda: channel.is_available, "credit")
    channel.send_batch(RowBatch([1, 2]))
    channel.send_control(EndOfData())
    until(lambda: target.queued == 2, "two elements")
    batch = target.take()
    assert isinstance(batch, RowBatch) and batch.rows == [1, 2]


class Bomb:
    """Unpickling it would be seen."""

    exploded: list[int] = []  # noqa: RUF012 - shared on purpose

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return Bomb.exploded.append, (1,)


ROWS = pickle.dumps([Bomb()])
HELLO = ClientHandshake(SECRET, "test/thief", "test/b").hello()
REFUSED: dict[str, bytes] = {
    "garbage": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "rows before proof": encode_header(FrameType.ROWS, 1, len(ROWS), 1) + ROWS,
    "open before proof": encode_header(FrameType.OPEN, 1, 4) + b"abcd",
    "oversized header": encode_header(FrameType.HELLO, 0, 1 << 20),
    "other wire version": HEADER.pack(MAGIC, 9, FrameType.HELLO, 0, 0, 0, 0),
    "unknown frame type": HEADER.pack(MAGIC, 1, 99, 0, 0, 0, 0),
    "malformed hello": encode_header(FrameType.HELLO, 0, 3) + b"abc",
    "proof without hello": encode_header(FrameType.PROOF, 0, 1) + b"\x80",
    "wrong target": (lambda payload: encode_header(FrameType.HELLO, 0, len(payload)) + payload)(
        ClientHandshake(SECRET, "test/a", "test/other").hello()
    ),
    "rows after hello": encode_header(FrameType.HELLO, 0, len(HELLO)) + HELLO
    + encode_header(FrameType.ROWS, 1, len(ROWS), 1) + ROWS,
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_handshake_is_closed_undecoded_and_harms_nobody(
    case: str, ends: Callable[..., End]
) -> None:
    sender, receiver = ends("a"), ends("b")
    with connect(receiver.address) as sock:
        sock.sendall(REFUSED[case])
        received = bytearray()
        try:
            while data := sock.recv(4096):
                received += data
        except ConnectionResetError:
            pass
        # At most the answer to a HELLO, then the end.
        assert len(received) < 200
    assert Bomb.exploded == []
    exchange_works(sender, receiver)


def test_a_wrong_secret_is_refused_by_the_server(ends: Callable[..., End]) -> None:
    receiver = ends("b")
    handshake = ClientHandshake(b"w" * 32, "test/thief", "test/b")
    hello = handshake.hello()
    with connect(receiver.address) as sock:
        sock.sendall(encode_header(FrameType.HELLO, 0, len(hello)) + hello)
        header = HEADER.unpack(sock.recv(HEADER.size, socket.MSG_WAITALL))
        challenge = msgspec.msgpack.decode(sock.recv(header[4], socket.MSG_WAITALL), type=Challenge)
        proof = msgspec.msgpack.encode({"proof": challenge.proof})
        sock.sendall(
            encode_header(FrameType.PROOF, 0, len(proof))
            + proof
            + encode_header(FrameType.ROWS, 1, len(ROWS), 1)
            + ROWS
        )
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    assert Bomb.exploded == []


def test_a_handshake_cannot_be_replayed_or_reflected() -> None:
    client, server = ClientHandshake(SECRET, "test/a", "test/b"), ServerHandshake(SECRET, "test/b")
    hello = client.hello()
    proof = client.answer(server.challenge(hello))
    assert server.verify(proof) == "test/a"
    again = ServerHandshake(SECRET, "test/b")
    answer = again.challenge(hello)
    with pytest.raises(WireProtocolError, match="does not belong"):
        again.verify(proof)
    # The server's own proof is not the client's.
    reflected = msgspec.msgpack.encode({"proof": msgspec.msgpack.decode(answer, type=Challenge).proof})
    with pytest.raises(WireProtocolError, match="does not belong"):
        again.verify(reflected)
    with pytest.raises(WireProtocolError, match="a second HELLO"):
        again.challenge(hello)


def test_a_client_proves_nothing_to_a_server_that_has_not_proved_itself() -> None:
    client = ClientHandshake(SECRET, "test/a", "test/b")
    impostor = ServerHandshake(b"w" * 32, "test/b")
    with pytest.raises(WireProtocolError, match="does not belong"):
        client.answer(impostor.challenge(client.hello()))
    # A genuine challenge of another connection is no proof for this one.
    other = ClientHandshake(SECRET, "test/a", "test/b")
    with pytest.raises(WireProtocolError, match="does not belong"):
        client.answer(ServerHandshake(SECRET, "test/b").challenge(other.hello()))


def test_a_client_does_not_trust_a_server_with_another_secret(ends: Callable[..., End]) -> None:
    sender, impostor = ends("a"), ends("b", secret=b"w" * 32)
    channel = sender.network.open_output(KEY, PRODUCER, impostor.address, CODEC, lambda: None, False)

    def failed() -> bool:
        try:
            return channel.is_available
        except ChannelFailedError:
            return True

    until(failed, "the refusal")
    with pytest.raises(ChannelFailedError, match=r"does not belong|closed the connection|broke at once"):
        _ = channel.is_available


def ended(sock: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(4096) == b""
    return True


@pytest.mark.parametrize("sent", [b"", encode_header(FrameType.HELLO, 0, len(HELLO))])
def test_who_proves_nothing_in_time_is_closed_and_who_has_is_not(
    sent: bytes, ends: Callable[..., End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_sockets, "HANDSHAKE_SECONDS", 3.0)
    sender, receiver = ends("a"), ends("b")
    exchange_works(sender, receiver)
    with connect(receiver.address) as sock:
        sock.sendall(sent)
        assert ended(sock)
    exchange_works(sender, receiver, (KEY[0], 1, 0))


def test_without_certificates_there_is_no_port_for_other_hosts(tmp_path: Path) -> None:
    end = End(tmp_path, "a", listen_tcp=True)
    try:
        assert end.address.port == 0
        assert end.address.unix_path
    finally:
        end.stop()


def test_a_tls_handshake_that_does_not_come_is_given_up(
    ends: Callable[..., End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_sockets, "HANDSHAKE_SECONDS", 0.2)
    receiver = ends("b", authority=CertificateAuthority("one", SystemClock()))
    with socket.create_connection(("127.0.0.1", receiver.address.port), timeout=120) as sock:
        assert ended(sock)


def test_a_storm_of_connections_is_bounded_and_harms_nobody(
    ends: Callable[..., End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_sockets, "MAX_STRANGERS", 4)
    monkeypatch.setattr(data_sockets, "HANDSHAKE_SECONDS", 2.0)
    sender, receiver = ends("a"), ends("b")
    exchange_works(sender, receiver)
    with contextlib.ExitStack() as opened:
        storm = [opened.enter_context(connect(receiver.address)) for _ in range(20)]
        # Those above the bound are closed at once, and who has proved itself goes on meanwhile.
        assert all(ended(sock) for sock in storm[4:])
        exchange_works(sender, receiver, (KEY[0], 1, 0))
        assert all(ended(sock) for sock in storm[:4])
    third = ends("c")
    exchange_works(third, receiver, (KEY[0], 2, 0))


def test_tls_proves_both_ends(ends: Callable[..., End]) -> None:
    authority = CertificateAuthority("one", SystemClock())
    sender, receiver = ends("a", authority=authority), ends("b", authority=authority)
    exchange_works(sender, receiver)
    stranger = ends("c", authority=CertificateAuthority("two", SystemClock()))
    channel = stranger.network.open_output(
        (KEY[0], 1, 0), PRODUCER, receiver.address, CODEC, lambda: None, False
    )
    until(lambda: channel._failure is not None, "the refusal")
    with pytest.raises(ChannelFailedError, match="TLS handshake failed"):
        _ = channel.is_available
    with socket.create_connection(("127.0.0.1", receiver.address.port), timeout=120) as plain:
        plain.sendall(encode_header(FrameType.HELLO, 0, len(HELLO)) + HELLO)
        with contextlib.suppress(ConnectionResetError):
            assert b"Yw" not in plain.recv(4096)
    exchange_works(sender, receiver, (KEY[0], 2, 0))


def test_a_host_that_has_gone_without_a_word_is_noticed_from_either_end(ends: Callable[..., End]) -> None:
    authority = CertificateAuthority("one", SystemClock())
    sender, receiver = ends("a", authority=authority), ends("b", authority=authority)
    exchange_works(sender, receiver)
    for end in (sender, receiver):
        (connection,) = end.network._peers
        sock = connection.socket
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, pause, probes = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        # Not longer than heartbeats need to find a TaskExecutor silent.
        assert idle + pause * probes <= 50


def test_a_peer_that_ends_fails_its_channels(ends: Callable[..., End]) -> None:
    sender, receiver = ends("a"), ends("b")
    woken: list[str] = []
    target = receiver.network.open_input(KEY, CODEC, 8, 1 << 20, lambda: woken.append("consumer"))
    channel = sender.network.open_output(KEY, PRODUCER, receiver.address, CODEC, lambda: None, False)
    until(lambda: channel.is_available, "credit")
    channel.send_batch(RowBatch([1]))
    until(lambda: target.queued == 1, "the batch")
    sender.stop()
    until(lambda: target._failure is not None, "the failure")
    assert isinstance(target.take(), RowBatch)
    with pytest.raises(ChannelFailedError, match="closed the connection"):
        target.take()


def test_a_consumer_that_ends_tells_its_producer(ends: Callable[..., End]) -> None:
    sender, receiver = ends("a"), ends("b")
    target: InputChannel = receiver.network.open_input(KEY, CODEC, 8, 1 << 20, lambda: None)
    channel = sender.network.open_output(KEY, PRODUCER, receiver.address, CODEC, lambda: None, False)
    until(lambda: channel.is_available, "credit")
    target.close()
    receiver.network.release(KEY[0])
    until(lambda: channel._failure is not None, "the message")
    late = sender.network.open_output((KEY[0], 1, 0), PRODUCER, receiver.address, CODEC, lambda: None, False)
    until(lambda: late._failure is not None, "the message")
    assert late._failure == channel._failure == "the consuming task has ended"


def test_a_worker_that_is_gone_is_named(ends: Callable[..., End]) -> None:
    sender, receiver = ends("a"), ends("b")
    receiver.stop()
    channel = sender.network.open_output(KEY, PRODUCER, receiver.address, CODEC, lambda: None, False)
    with pytest.raises(ChannelFailedError, match="test/b does not answer"):
        _ = channel.is_available
