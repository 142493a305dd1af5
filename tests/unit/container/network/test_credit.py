"""Credit of one channel: what is sent and not taken never exceeds the window, and nothing is lost or stuck."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.frames import FrameHeader, decode_header
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.output_channel import (
    BatchTooLargeError,
    LocalOutputChannel,
    OutputChannel,
    RemoteOutputChannel,
)
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.runtime.data.elements import (
    BarrierAlignment,
    CheckpointBarrier,
    ControlElement,
    EndOfData,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from yarrow.runtime.data.serializers.serializers import serializer_for

WINDOW_BATCHES = 3
WINDOW_BYTES = 64 * 1024
CODEC = ElementCodec(serializer_for(None))


class Wire:
    """Carries the frames of a remote channel at once; keeps the largest queue seen."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.target: InputChannel

    def send(self, parts: list[Any]) -> None:
        data = b"".join(bytes(part) for part in parts)
        header: FrameHeader = decode_header(data, 0, authenticated=True, max_payload=1 << 28)
        self.target.append_frame(header, data[20:])


def pair(remote: bool) -> tuple[OutputChannel, InputChannel]:
    receiver = InputChannel(CODEC, WINDOW_BATCHES, WINDOW_BYTES, lambda: None)
    if not remote:
        local = LocalOutputChannel(lambda: None)
        local.attach(receiver)
        return local, receiver
    wire = Wire()
    wire.target = receiver
    sender = RemoteOutputChannel(1, CODEC, wire, lambda: None)
    receiver.connect(sender)
    return sender, receiver


@pytest.mark.parametrize("remote", [False, True])
@given(
    sizes=st.lists(st.sampled_from([1, 10, 3000, 40_000, 200_000]), max_size=25),
    takes=st.lists(st.integers(0, 4), max_size=25),
)
def test_the_window_bounds_what_waits_and_everything_arrives_in_order(
    remote: bool, sizes: list[int], takes: list[int]
) -> None:
    sender, receiver = pair(remote)
    taken: list[Any] = []
    waiting = 0
    for number, size in enumerate(sizes):
        sender.send_batch(RowBatch([(number, "x" * size)]))
        sender.send_control(Watermark(number))
        waiting = max(waiting, sender.sent_batches - receiver._consumed_batches)
        for _ in range(takes[number] if number < len(takes) else 0):
            if receiver.has_data:
                taken.append(receiver.take())
        sender.drain_overdraft()
    assert waiting <= WINDOW_BATCHES
    for _ in range(10 * len(sizes) + 10):
        if receiver.has_data:
            taken.append(receiver.take())
        sender.drain_overdraft()
    assert sender.overdraft == 0
    found = [e.rows[0][0] if isinstance(e, RowBatch) else e.timestamp for e in taken]
    assert found == [number for number in range(len(sizes)) for _ in range(2)]


@pytest.mark.parametrize("remote", [False, True])
def test_a_batch_over_the_window_travels_alone(remote: bool) -> None:
    sender, receiver = pair(remote)
    sender.send_batch(RowBatch(["x" * (3 * WINDOW_BYTES)]))
    sender.send_batch(RowBatch(["y"]))
    assert (receiver.queued, sender.overdraft) == (1, 1)
    assert not sender.is_available
    receiver.take()
    assert sender.drain_overdraft()
    assert receiver.queued == 1


def test_credit_ends_by_bytes_as_well_as_by_batches() -> None:
    sender, _ = pair(False)
    granted = sender.credit

    def may_send(batches: int, size: int) -> bool:
        sender.sent_batches, sender.sent_bytes = batches, size
        return sender.has_credit

    assert may_send(0, 0)
    assert not may_send(0, granted.granted_bytes), "batches are left, bytes are not"
    assert not may_send(granted.granted_batches, 0), "bytes are left, batches are not"


def test_an_old_grant_takes_nothing_back() -> None:
    sender, _ = pair(False)
    much = 10 * WINDOW_BYTES
    sender.grant(10, much)
    sender.grant(5, 50)
    assert (sender.credit.granted_batches, sender.credit.granted_bytes) == (10, much)
    sender.grant(11, 50)
    sender.grant(5, much + 1)
    assert (sender.credit.granted_batches, sender.credit.granted_bytes) == (11, much + 1)


@pytest.mark.parametrize("remote", [False, True])
def test_timestamps_and_control_elements_arrive_as_sent(remote: bool) -> None:
    sender, receiver = pair(remote)
    sender.send_batch(RowBatch([1, "two"], [5, None], b"\x00\x03"))
    elements: list[ControlElement] = [
        Watermark(-7),
        WatermarkStatus(True),
        LatencyMarker(12, "ab" * 16, 3),
        CheckpointBarrier(4, 99, BarrierAlignment.UNALIGNED),
        EndOfData(),
    ]
    for element in elements:
        sender.send_control(element)
    batch = receiver.take()
    assert isinstance(batch, RowBatch)
    assert (batch.rows, batch.timestamps, batch.kinds) == ([1, "two"], [5, None], b"\x00\x03")
    for element in elements:
        arrived = receiver.take()
        assert type(arrived) is type(element)
        for slot in type(element).__slots__:
            assert getattr(arrived, slot) == getattr(element, slot)
    assert not receiver.has_data


def test_what_waits_is_read_before_a_failure_is_told() -> None:
    sender, receiver = pair(False)
    sender.send_batch(RowBatch([1]))
    sender.close("the producer broke")
    assert isinstance(receiver.take(), RowBatch)
    assert receiver.has_data
    with pytest.raises(ChannelFailedError, match="the producer broke"):
        receiver.take()


def test_the_end_of_a_producer_after_its_end_of_data_is_no_failure() -> None:
    sender, receiver = pair(False)
    sender.send_control(EndOfData())
    receiver.take()
    receiver.ended = True
    sender.close("closed late")
    assert not receiver.has_data


def test_a_closed_receiver_keeps_nothing() -> None:
    sender, receiver = pair(False)
    receiver.close()
    sender.send_batch(RowBatch([1]))
    assert receiver.queued == 0
    assert not receiver.has_data


def test_a_failed_consumer_is_told_when_the_producer_asks_for_credit() -> None:
    sender, _ = pair(False)
    sender.fail("the consuming task has ended")
    with pytest.raises(ChannelFailedError, match="has ended"):
        _ = sender.is_available


def test_a_channel_without_its_consumer_has_no_credit() -> None:
    sender = LocalOutputChannel(lambda: None)
    sender.send_batch(RowBatch([1]))
    sender.send_control(Watermark(1))
    assert not sender.is_available
    receiver = InputChannel(CODEC, WINDOW_BATCHES, WINDOW_BYTES, lambda: None)
    sender.attach(receiver)
    assert sender.drain_overdraft()
    assert receiver.queued == 2


def test_a_row_above_the_longest_frame_is_refused_naming_the_option() -> None:
    wire = Wire()
    sender = RemoteOutputChannel(1, CODEC, wire, lambda: None)
    sender.grant(8, 1 << 30)
    with pytest.raises(BatchTooLargeError, match=r"taskmanager\.network\.max-frame-size"):
        sender.send_batch(RowBatch([b"x" * (2 << 20)]))


@pytest.mark.parametrize("remote", [False, True])
def test_what_can_be_taken_with_a_batch_is_the_batches_right_behind_it(remote: bool) -> None:
    sender, receiver = pair(remote)
    seen = [receiver.rows_follow]
    sender.send_batch(RowBatch([1, 2]))
    seen.append(receiver.rows_follow)
    receiver.blocked = True
    seen.append(receiver.rows_follow)
    receiver.blocked = False
    sender.send_control(Watermark(5))
    sender.send_batch(RowBatch([3]))
    for _ in range(2):
        receiver.take()
        seen.append(receiver.rows_follow)
    receiver.close()
    assert [*seen, receiver.rows_follow] == [False, True, False, False, True, False]
