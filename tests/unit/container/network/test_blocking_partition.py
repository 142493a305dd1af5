"""Spooled results: written whole, read as written, refused when they are not, bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import wait_until
from yarrow.container.network.blocking_partition import (
    FrameOutput,
    LocalFrames,
    ResultKey,
    ResultSpool,
    SpoolChannel,
    SpoolError,
)
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.data.elements import EndOfData, RowBatch, StreamElement, Watermark
from yarrow.runtime.data.serializers.serializers import serializer_for

MEBIBYTE = 1 << 20


def key(attempt: int = 0, consumer: int = 0) -> ResultKey:
    return ResultKey(ExecutionAttemptID(f"g_v_0_{attempt}"), 3, consumer)


class Fixture:
    """A spool with a consumer."""

    def __init__(self, folder: Path, budget: int = MEBIBYTE) -> None:
        self.spool = ResultSpool(str(folder / "spool"), budget, MEBIBYTE)
        self.codec = ElementCodec(serializer_for(None))

    def write(self, name: ResultKey, *elements: StreamElement) -> SpoolChannel:
        """As a task does: what fails is closed."""
        channel = SpoolChannel(self.spool, name, self.codec, lambda: None)
        try:
            for element in elements:
                if isinstance(element, RowBatch):
                    assert channel.is_available
                    channel.send_batch(element)
                else:
                    channel.send_control(element)  # type: ignore[arg-type]
        except SpoolError:
            channel.close("the task failed")
            raise
        return channel

    def consumer(self, name: ResultKey, window: int = 1) -> InputChannel:
        channel = InputChannel(self.codec, window, 1 << 16, lambda: None)
        channel.reads_result_of = name.attempt
        frames = LocalFrames(channel)
        output: FrameOutput = frames
        frames.wake = self.spool.serve(name, output)
        channel.connect(frames)
        return channel


@pytest.fixture
def spool(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def read(channel: InputChannel) -> list[StreamElement]:
    found: list[StreamElement] = []
    while not found or not isinstance(found[-1], EndOfData):
        wait_until(lambda: channel.has_data)
        found.append(channel.take())
    return found


def rows(elements: list[StreamElement]) -> list[object]:
    return [row for element in elements if isinstance(element, RowBatch) for row in element.rows]


def test_what_was_written_is_read_in_its_order_a_window_at_a_time(spool: Fixture) -> None:
    batches = [RowBatch([(number, "x" * 100)] * 10) for number in range(50)]
    spool.write(key(), *batches, Watermark(7), EndOfData()).close("done")
    elements = read(spool.consumer(key()))
    assert rows(elements) == [row for batch in batches for row in batch.rows]
    assert elements[-2] == Watermark(7)
    assert rows(read(spool.consumer(key(), window=10))) == rows(elements), "a result may be read again"


def test_a_consumer_that_comes_early_waits_for_the_end(spool: Fixture) -> None:
    early = spool.consumer(key())
    channel = spool.write(key(), RowBatch([1, 2]))
    assert not early.has_data
    channel.send_control(EndOfData())
    assert rows(read(early)) == [1, 2]


def test_a_result_that_was_broken_off_reaches_nobody(spool: Fixture) -> None:
    early = spool.consumer(key())
    spool.write(key(), RowBatch([1])).close("the task failed")
    for channel in (early, spool.consumer(key())):
        wait_until(lambda channel=channel: channel.has_data)  # type: ignore[misc]
        with pytest.raises(ChannelFailedError) as raised:
            channel.take()
        assert raised.value.lost_result == key().attempt
    assert os.listdir(os.path.dirname(spool.spool.path(key()))) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_result_names_its_producer(spool: Fixture, damage: str) -> None:
    spool.write(key(), *(RowBatch([("row", number)]) for number in range(20)), EndOfData())
    path = Path(spool.spool.path(key()))
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-7])
    else:
        path.unlink()
    with pytest.raises(ChannelFailedError, match="corrupt") as raised:
        read(spool.consumer(key(), window=100))
    assert raised.value.lost_result == key().attempt


def test_past_its_budget_the_producer_fails(tmp_path: Path) -> None:
    spool = Fixture(tmp_path, budget=10_000)
    with pytest.raises(SpoolError, match=r"blocking-spool\.max-size"):
        spool.write(key(), *(RowBatch(["x" * 1000]) for _ in range(20)))


def test_a_new_attempt_has_the_budget_of_the_former(tmp_path: Path) -> None:
    spool = Fixture(tmp_path, budget=10_000)
    for attempt in range(5):
        spool.write(key(attempt), RowBatch(["x" * 6000]), EndOfData())
    assert os.listdir(tmp_path / "spool") == [key(4).file_name]


def test_a_folder_that_cannot_be_written_fails_by_name(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file in the way")
    with pytest.raises(SpoolError, match=r"taskmanager\.tmp\.dirs"):
        Fixture(tmp_path).write(key(), EndOfData())


def test_a_full_disk_fails_by_name(tmp_path: Path) -> None:
    spool = Fixture(tmp_path)
    (tmp_path / "spool").mkdir()
    os.symlink("/dev/full", tmp_path / "spool" / key().file_name)
    with pytest.raises(SpoolError, match="No space left on device"):
        spool.write(key(), RowBatch(["x" * 1000]), EndOfData())
