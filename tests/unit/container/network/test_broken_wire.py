"""A data connection that has proved itself and then breaks or lies: the channel fails by name, what came whole is read,
nothing is applied in part, and other connections go on.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.job_graphs import Stage, linear_job
from tests.unit.container.network.test_credit import CODEC as ROW_CODEC
from tests.unit.container.network.test_credit import WINDOW_BATCHES, Wire
from tests.unit.container.network.test_refused_connections import (
    CODEC,
    KEY,
    PRODUCER,
    SECRET,
    End,
    connect,
    exchange_works,
    until,
)
from yarrow.container.network.frames import (
    HEADER,
    MAGIC,
    WIRE_VERSION,
    FrameType,
    OpenChannel,
    WireProtocolError,
    encode_header,
)
from yarrow.container.network.handshake import ClientHandshake
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.output_channel import RemoteOutputChannel
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.container.task.checkpointing.channel_origins import checking_codec_of
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.elements import ArrowBatch, EndOfData, RowBatch
from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.graph.column_spec import BatchFunctionOperator, BatchShape, RowsToArrowOperator
from yarrow.runtime.graph.job_graph import ChainedEdge, JobGraph, OperatorDescriptor
from yarrow.runtime.graph.operator_spec import BatchContainer, StreamKind
from yarrow.runtime.rpc.messages import WorkerAddress

CHANNEL = 1
OTHER: tuple[Any, int, int] = (KEY[0], 1, 0)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Callable[..., End]]:
    made: list[End] = []

    def make(*arguments: Any, **named: Any) -> End:
        made.append(End(tmp_path, *arguments, **named))
        return made[-1]

    yield make
    for end in made:
        end.stop()


def frame(kind: FrameType, payload: bytes, rows: int = 0) -> bytes:
    return encode_header(kind, CHANNEL, len(payload), rows) + payload


def batch_of(rows: list[Any]) -> bytes:
    kind, parts, _ = CODEC.encode_batch(RowBatch(rows))
    return frame(kind, b"".join(bytes(part) for part in parts), len(rows))


def proved(address: WorkerAddress) -> socket.socket:
    """A connection of a worker of this application, with an open channel."""
    sock = connect(address)
    handshake = ClientHandshake(SECRET, "test/a", "test/b")
    sock.sendall(encode_header(FrameType.HELLO, 0, len(handshake.hello())) + handshake.hello())
    header = HEADER.unpack(sock.recv(HEADER.size, socket.MSG_WAITALL))
    proof = handshake.answer(sock.recv(header[4], socket.MSG_WAITALL))
    opened = msgspec.msgpack.encode(
        OpenChannel(edge=KEY[1], producer_attempt=PRODUCER, producer_subtask=KEY[2], consumer_attempt=KEY[0])
    )
    sock.sendall(encode_header(FrameType.PROOF, 0, len(proof)) + proof + frame(FrameType.OPEN, opened))
    return sock


WHOLE = batch_of([1, 2])
#: What follows a whole batch.
BROKEN: dict[str, bytes] = {
    "another magic": b"XX" + WHOLE[2:],
    "another version": HEADER.pack(MAGIC, WIRE_VERSION + 1, FrameType.ROWS, CHANNEL, 4, 1, 0) + b"rows",
    "unknown type": HEADER.pack(MAGIC, WIRE_VERSION, 99, CHANNEL, 0, 0, 0),
    "oversized batch": encode_header(FrameType.ROWS, CHANNEL, (1 << 32) - 1, 1),
    "oversized control": encode_header(FrameType.WATERMARK, CHANNEL, 1 << 24),
    "cut in its header": WHOLE[:11],
    "cut in its payload": WHOLE[:-1],
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_frame_closes_the_connection_and_nothing_of_it_is_read(
    case: str, ends: Callable[..., End]
) -> None:
    sender, receiver = ends("c"), ends("b")
    target = receiver.network.open_input(KEY, CODEC, 8, 1 << 20, lambda: None)
    with proved(receiver.address) as sock:
        sock.sendall(WHOLE + BROKEN[case])
        if case.startswith("cut"):
            sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
    until(lambda: target._failure is not None, "the failure")
    whole = target.take()
    assert isinstance(whole, RowBatch) and whole.rows == [1, 2]
    with pytest.raises(ChannelFailedError):
        target.take()
    exchange_works(sender, receiver, OTHER)


def test_a_reset_in_the_middle_of_a_frame_fails_the_channel(ends: Callable[..., End]) -> None:
    sender, receiver = ends("c"), ends("b")
    target = receiver.network.open_input(KEY, CODEC, 8, 1 << 20, lambda: None)
    with proved(receiver.address) as sock:
        sock.sendall(WHOLE + WHOLE[:-3])
        until(lambda: target.queued == 1, "the whole batch")
        # No good-bye: what was under way is lost.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: target._failure is not None, "the failure")
    assert isinstance(target.take(), RowBatch)
    with pytest.raises(ChannelFailedError):
        target.take()
    exchange_works(sender, receiver, OTHER)


def test_many_connections_at_once_are_served_or_closed(ends: Callable[..., End]) -> None:
    sender, receiver = ends("c"), ends("b")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            sock = stack.enter_context(connect(receiver.address))
            sock.sendall(b"Y")  # A header that never becomes whole.
        exchange_works(sender, receiver)
    exchange_works(sender, receiver, OTHER)


@pytest.mark.parametrize(
    "payload", [pickle.dumps([1]), b"", b"\x80\x05no pickle"], ids=["too few", "empty", "no rows"]
)
def test_rows_that_disagree_with_their_header_fail_the_task_that_takes_them(payload: bytes) -> None:
    channel = InputChannel(CODEC, 8, 1 << 20, lambda: None)
    wire = Wire()
    wire.target = channel
    wire.send([frame(FrameType.ROWS, payload, 2)])
    with pytest.raises((WireProtocolError, RowFormatError), match=r"held 1|pickled rows"):
        channel.take()


# ---------------------------------------------------------------------- schemas

COLUMNS = pa.schema([("key", pa.int64()), ("text", pa.string())])


def declared_job(filtered: bool) -> JobGraph:
    """A source whose rows become columns, `filtered` or not in the same chain, and a print behind an exchange."""
    job = linear_job(Stage(2), Stage(3))
    source, sink = job.vertices
    operators = [
        *source.operators,
        OperatorDescriptor(
            id=OperatorID("a" * 32),
            name="columns",
            spec=RowsToArrowOperator(schema=bytes(COLUMNS.serialize())),
        ),
    ]
    if filtered:
        spec = BatchFunctionOperator(
            shape=BatchShape.FILTER_BATCHES, function=b"", container=BatchContainer.PYARROW
        )
        operators.append(OperatorDescriptor(id=OperatorID("b" * 32), name="some", spec=spec))
    chained = tuple(ChainedEdge(source=index, target=index + 1) for index in range(len(operators) - 1))
    source = msgspec.structs.replace(source, operators=tuple(operators), chained_edges=chained)
    edge = msgspec.structs.replace(
        job.edges[0], source_operator=len(operators) - 1, stream_kind=StreamKind.COLUMNAR
    )
    return msgspec.structs.replace(job, vertices=(source, sink), edges=(edge,))


def columns_sent(channel: InputChannel, batch: pa.RecordBatch) -> None:
    kind, parts, _ = CODEC.encode_batch(ArrowBatch(batch))
    wire = Wire()
    wire.target = channel
    wire.send([frame(kind, b"".join(bytes(part) for part in parts), len(batch))])


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        pa.record_batch({"key": [1], "other": ["a"]}),
        pa.record_batch({"key": [1.5], "text": ["a"]}),
        pa.record_batch({"text": ["a"], "key": [1]}),
        pa.record_batch({"key": [1]}),
    ],
    ids=["a name", "a type", "the order", "the number"],
)
def test_columns_that_are_not_the_declared_ones_fail_the_task_that_takes_them(
    wrong: pa.RecordBatch, filtered: bool
) -> None:
    job = declared_job(filtered)
    channel = InputChannel(checking_codec_of(job, job.edges[0]), 8, 1 << 20, lambda: None)
    right = pa.record_batch({"key": [1], "text": ["a"]})
    columns_sent(channel, right)
    columns_sent(channel, wrong)
    whole = channel.take()
    assert isinstance(whole, ArrowBatch) and whole.batch == right
    with pytest.raises(WireProtocolError) as raised:
        channel.take()
    found = ", ".join(f"{field.name}: {field.type}" for field in wrong.schema)
    assert "edge 0 from 'vertex 0' to 'vertex 1'" in str(raised.value)
    assert f"expected the columns key: int64, text: string, found {found};" in str(raised.value)


def test_columns_that_differ_in_what_misleads_nobody_pass() -> None:
    job = declared_job(filtered=False)
    channel = InputChannel(checking_codec_of(job, job.edges[0]), 8, 1 << 20, lambda: None)
    strict = pa.schema([pa.field("key", pa.int64(), nullable=False), ("text", pa.string())], {"by": "us"})
    columns_sent(channel, pa.record_batch([[1], ["a"]], schema=strict))
    assert isinstance(channel.take(), ArrowBatch)


# ---------------------------------------------------------------------- credit


class RepeatedCredit:
    """Grants that come twice, and older ones again behind newer ones."""

    def __init__(self, sender: RemoteOutputChannel) -> None:
        self._sender = sender
        self._sent: list[tuple[int, int]] = []

    def grant(self, batches: int, size: int) -> None:
        self._sent.append((batches, size))
        for one in (self._sent[-1], self._sent[-1], self._sent[0]):
            self._sender.grant(*one)


def test_repeated_and_late_grants_neither_stop_nor_overrun_a_channel() -> None:
    wire = Wire()
    channel = InputChannel(ROW_CODEC, WINDOW_BATCHES, 1 << 16, lambda: None)
    wire.target = channel
    sender = RemoteOutputChannel(1, ROW_CODEC, wire, lambda: None)
    channel.connect(RepeatedCredit(sender))
    sender.grant(WINDOW_BATCHES, 1 << 16)
    taken = []
    for number in range(500):
        while not sender.is_available:
            assert channel.queued, f"nothing waits and nothing may be sent: stuck at {number}"
            element = channel.take()
            assert isinstance(element, RowBatch)
            taken += element.rows
        sender.send_batch(RowBatch([number]))
        assert channel.queued <= WINDOW_BATCHES
    sender.send_control(EndOfData())
    while channel.queued:
        element = channel.take()
        taken += element.rows if isinstance(element, RowBatch) else []
    assert taken == list(range(500))
