"""Barriers over channels: before a cut lies exactly what lies before the barriers, and nobody waits for ever."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.network.element_codec import ElementCodec, decode_control, encode_control
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.input_gate import GateChannel, InputGate
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import BarrierAlignment, CheckpointBarrier, EndOfData, RowBatch
from yarrow.runtime.data.serializers.serializers import serializer_for


def options(*, exactly_once: bool = True) -> CheckpointOptions:
    return CheckpointOptions(
        kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory=""), exactly_once=exactly_once
    )


def barrier(number: int, *, exactly_once: bool = True) -> CheckpointBarrier:
    return CheckpointBarrier(number, 0, options=options(exactly_once=exactly_once))


class Listener:
    def __init__(self) -> None:
        self.announced: list[int] = []
        self.given_up: list[int] = []

    def checkpoint_announced(self, barrier: CheckpointBarrier) -> None:
        self.announced.append(barrier.checkpoint_id)

    def alignment_given_up(self, barrier: CheckpointBarrier, reason: str) -> None:
        self.given_up.append(barrier.checkpoint_id)


class Consumer:
    """Takes what a gate gives and notes what lay before each cut."""

    def __init__(self, channels: list[list[Any]]) -> None:
        codec = ElementCodec(serializer_for(None))
        entries = [GateChannel(InputChannel(codec, 8, 1 << 20, lambda: None), 0) for _ in channels]
        self.gate = InputGate(entries, 1, ManualClock())
        self.listener = Listener()
        self.gate.barriers.listener = self.listener
        for entry, elements in zip(entries, channels, strict=True):
            for element in elements:
                entry.channel.append(RowBatch([element]) if isinstance(element, str) else element, 0)
        self.taken: list[str] = []
        self.cuts: dict[int, list[str]] = {}

    def step(self) -> bool:
        found = self.gate.poll()
        if found is None:
            return False
        position, entry, element = found
        if isinstance(element, RowBatch):
            self.taken += element.rows
        elif isinstance(element, CheckpointBarrier):
            self.note(self.gate.barriers.barrier(position, element))
        else:
            self.gate.end_channel(entry)
            self.note(self.gate.barriers.channel_ended())
        return True

    def note(self, ready: Any) -> None:
        for each in ready:
            assert each.barrier.checkpoint_id not in self.cuts
            self.cuts[each.barrier.checkpoint_id] = sorted(self.taken)


def stream(channel: int, rows: list[int], missing: set[int], exactly_once: bool) -> list[Any]:
    """`rows[i]` rows before barrier i + 1; barriers in `missing` are not sent."""
    elements: list[Any] = []
    for number, count in enumerate(rows, 1):
        elements += [f"{channel}.{number}.{index}" for index in range(count)]
        if number not in missing:
            elements.append(barrier(number, exactly_once=exactly_once))
    return [*elements, EndOfData()]


rows_of_channels = st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(rows_of_channels, st.data())
def test_before_a_cut_lies_what_lies_before_its_barriers(rows: list[list[int]], data: st.DataObject) -> None:
    exactly_once = data.draw(st.booleans())
    missing = [set(data.draw(st.lists(st.integers(1, 4), max_size=2))) for _ in rows]
    aborted = set(data.draw(st.lists(st.integers(1, 4), max_size=2)))
    consumer = Consumer([stream(i, each, missing[i], exactly_once) for i, each in enumerate(rows)])
    abort_at = data.draw(st.integers(0, 12))
    steps = 0
    while True:
        if steps == abort_at:
            for number in aborted:
                consumer.gate.barriers.abort(number)
        steps += 1
        if not consumer.step() and steps > abort_at:
            break
    everything = [
        f"{c}.{n}.{i}" for c, each in enumerate(rows) for n, k in enumerate(each, 1) for i in range(k)
    ]
    assert sorted(consumer.taken) == sorted(everything)
    assert consumer.gate.all_ended
    for number, before in consumer.cuts.items():
        if any(number in m and len(r) >= number for m, r in zip(missing, rows, strict=True)):
            # A producer that has skipped it acknowledges nothing: the checkpoint cannot become complete.
            continue
        # A channel that ended without the barrier brought all it had.
        wanted = [
            row
            for row in everything
            if int(row.split(".")[1]) <= number or len(rows[int(row.split(".")[0])]) < number
        ]
        if exactly_once:
            assert before == sorted(wanted)
        else:
            assert set(wanted) <= set(before)
    whole = {
        n for n in range(1, 5) if all(n not in m or len(r) < n for m, r in zip(missing, rows, strict=True))
    }
    sent = {n for r, m in zip(rows, missing, strict=True) for n in range(1, len(r) + 1) if n not in m}
    assert consumer.cuts.keys() >= (whole & sent) - aborted
    assert not (consumer.cuts.keys() & set(consumer.listener.given_up))


def test_a_barrier_may_come_behind_the_end_of_data() -> None:
    consumer = Consumer([["a", EndOfData(), barrier(1)], ["b", EndOfData()]])
    while consumer.step():
        pass
    assert consumer.cuts == {1: ["a", "b"]}


def test_an_alignment_that_goes_on_is_told_of_as_long_as_it_lasts() -> None:
    consumer = Consumer([["a", barrier(1)], ["b"]])
    barriers = consumer.gate.barriers
    assert (barriers.alignment_seconds, barriers.start_delay_seconds) == (0, 0)
    while consumer.step():
        pass
    first = barriers.alignment_seconds
    assert consumer.cuts == {} and 0 < first < barriers.alignment_seconds
    consumer.gate.channels[1].channel.append(barrier(1), 0)
    while consumer.step():
        pass
    taken = barriers.alignment_seconds
    assert consumer.cuts == {1: ["a", "b"]} and taken > first and taken == barriers.alignment_seconds


def test_the_delay_of_a_start_is_from_the_trigger_to_the_first_barrier() -> None:
    clock = ManualClock(5_000)
    channels = [GateChannel(InputChannel(ElementCodec(serializer_for(None)), 8, 1 << 20, lambda: None), 0)]
    gate = InputGate(channels, 1, clock)
    late = CheckpointBarrier(1, 3_000, options=options())
    (ready,) = gate.barriers.barrier(0, late)
    assert ready.start_delay_seconds == gate.barriers.start_delay_seconds == 2.0


def test_a_trigger_waits_for_the_end_of_what_is_queued() -> None:
    consumer = Consumer([["a", EndOfData()], ["b", EndOfData()]])
    consumer.note(consumer.gate.barriers.trigger(barrier(1)))
    assert consumer.cuts == {}
    while consumer.step():
        pass
    assert consumer.cuts == {1: ["a", "b"]}
    consumer.note(consumer.gate.barriers.trigger(barrier(2)))
    assert 2 in consumer.cuts
    consumer.note(consumer.gate.barriers.trigger(barrier(2)))


def test_at_least_once_blocks_nothing_and_counts_several_checkpoints() -> None:
    one, two = barrier(1, exactly_once=False), barrier(2, exactly_once=False)
    consumer = Consumer([[one, "a", two, "b"], ["c", one, two]])
    while consumer.step():
        assert not any(entry.channel.blocked for entry in consumer.gate.channels)
    assert consumer.cuts.keys() == {1, 2}
    assert consumer.listener.announced == [1, 2]


def test_options_travel_with_a_barrier() -> None:
    sent = CheckpointBarrier(7, 123, BarrierAlignment.AT_LEAST_ONCE, options(exactly_once=False))
    came = decode_control(*encode_control(sent))
    assert isinstance(came, CheckpointBarrier)
    assert (came.checkpoint_id, came.timestamp_ms, came.alignment) == (7, 123, BarrierAlignment.AT_LEAST_ONCE)
    assert came.options == sent.options
    without = decode_control(*encode_control(CheckpointBarrier(7, 123)))
    assert isinstance(without, CheckpointBarrier) and without.options is None
