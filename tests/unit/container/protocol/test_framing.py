"""Frames survive any cut of the stream; what is no frame is refused before it is read."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.container.supervisor.conftest import eventually, run
from yarrow.container.protocol import framing
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.frame_channel import FrameChannel
from yarrow.container.protocol.framing import FramedSocket, encode_frame
from yarrow.container.protocol.worker_protocol import MAX_FRAME_BYTES, LogLines, OutputLines

MESSAGES = [LogLines(text="a"), LogLines(text=""), LogLines(text="\U0001f40b" * 1000)]


def channel_of(messages: list[LogLines], closed: list[FrameError | None]) -> FrameChannel[LogLines]:
    return FrameChannel(LogLines, messages.append, closed.append)


@given(cuts=st.lists(st.integers(0, 5000), max_size=20))
def test_channel_reads_frames_however_they_arrive(cuts: list[int]) -> None:
    data = b"".join(map(encode_frame, MESSAGES))
    messages: list[LogLines] = []
    channel = channel_of(messages, [])
    positions = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(positions):
        channel.data_received(data[start:end])
    assert messages == MESSAGES


def test_blocking_side_and_channel_understand_each_other() -> None:
    async def body() -> None:
        ours, theirs = socket.socketpair()
        messages: list[LogLines] = []
        closed: list[FrameError | None] = []
        channel = channel_of(messages, closed)
        await channel.open(ours)
        framed: FramedSocket[LogLines] = FramedSocket(theirs, msgspec.msgpack.Decoder(LogLines))
        for message in MESSAGES:
            await asyncio.to_thread(framed.send, message)
        await eventually(lambda: len(messages) == len(MESSAGES), "all arrived")
        channel.send(MESSAGES[0])
        assert await asyncio.to_thread(framed.receive) == MESSAGES[0]
        framed.close()
        await eventually(lambda: closed == [None], "the end was seen")
        channel.send(MESSAGES[0])

    run(body())


def test_receive_tells_an_end_between_frames_from_one_inside() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        framed: FramedSocket[LogLines] = FramedSocket(ours, msgspec.msgpack.Decoder(LogLines))
        theirs.sendall(encode_frame(MESSAGES[0]) + b"\x05\x00")
        theirs.close()
        assert framed.receive() == MESSAGES[0]
        with pytest.raises(FrameError, match="after 2 of 4 bytes"):
            framed.receive()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<I", MAX_FRAME_BYTES + 1), "above the limit"),
        (encode_frame(OutputLines(stream="stdout", text="")), "no message of this protocol"),
        (b"\x01\x00\x00\x00\xc1", "no message of this protocol"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, reason: str) -> None:
    async def body() -> None:
        ours, theirs = socket.socketpair()
        closed: list[FrameError | None] = []
        channel = channel_of([], closed)
        await channel.open(ours)
        theirs.sendall(data)
        await eventually(lambda: bool(closed), "the channel closed itself")
        theirs.close()
        assert closed[0] is not None
        assert reason in str(closed[0])

    run(body())


def test_a_message_above_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_FRAME_BYTES", 100)
    with pytest.raises(FrameError, match=r"LogLines takes .* ship large data"):
        encode_frame(LogLines(text="x" * 100))
