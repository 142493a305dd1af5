"""Watermarks over channels and inputs, alignment of barriers: the rules of Flink, by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.input_gate import GateChannel, InputGate
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, CheckpointBarrier, RowBatch
from yarrow.runtime.data.serializers.serializers import serializer_for


def gate(*inputs: int) -> InputGate:
    """A gate with one channel an entry, which says its logical input."""
    codec = ElementCodec(serializer_for(None))
    channels = [GateChannel(InputChannel(codec, 8, 1 << 20, lambda: None), index) for index in inputs]
    return InputGate(channels, 1 + max(inputs))


def advance(made: InputGate, channel: int, timestamp: int) -> int:
    entry = made.channels[channel]
    made.valves[entry.input_index].advance(entry, timestamp)
    return made.combined_watermark


def set_idle(made: InputGate, channel: int, idle: bool = True) -> int:
    entry = made.channels[channel]
    made.valves[entry.input_index].set_idle(entry, idle)
    return made.combined_watermark


def end(made: InputGate, channel: int) -> int:
    entry = made.channels[channel]
    made.end_channel(entry)
    made.valves[entry.input_index].channel_ended()
    return made.combined_watermark


def test_the_watermark_is_the_smallest_of_the_channels() -> None:
    made = gate(0, 0)
    assert advance(made, 0, 10) == MIN_TIMESTAMP
    assert advance(made, 1, 5) == 5
    assert advance(made, 1, 20) == 10
    assert advance(made, 0, 3) == 10


def test_an_idle_channel_is_left_out_and_must_catch_up() -> None:
    made = gate(0, 0)
    advance(made, 0, 10)
    advance(made, 1, 50)
    assert set_idle(made, 0) == 50
    assert not is_idle(made)
    assert set_idle(made, 0, False) == 50
    # It lags behind: the other goes on without it.
    assert advance(made, 1, 60) == 60
    assert advance(made, 0, 55) == 60
    # Caught up, it counts again.
    assert advance(made, 0, 70) == 60
    assert advance(made, 1, 90) == 70


def test_when_all_are_idle_the_largest_watermark_counts() -> None:
    made = gate(0, 0)
    advance(made, 0, 10)
    advance(made, 1, 50)
    assert set_idle(made, 1) == 10
    assert set_idle(made, 0) == 50
    assert is_idle(made)
    set_idle(made, 0, False)
    assert not is_idle(made)


def test_an_ended_channel_holds_nothing_back() -> None:
    made = gate(0, 0)
    advance(made, 0, 10)
    assert end(made, 1) == 10
    assert advance(made, 0, 20) == 20
    set_idle(made, 0)
    assert is_idle(made)
    assert end(made, 0) == 20
    assert not is_idle(made)
    assert made.all_ended


def test_two_inputs_combine() -> None:
    made = gate(0, 0, 1)
    advance(made, 0, 10)
    advance(made, 1, 20)
    assert made.combined_watermark == MIN_TIMESTAMP
    assert advance(made, 2, 15) == 10
    assert advance(made, 0, 30) == 15
    assert set_idle(made, 2) == 20
    assert not is_idle(made)
    assert set_idle(made, 2, False) == 15
    assert end(made, 2) == 20


def test_the_end_of_one_input_does_not_make_late_what_an_idle_one_brings() -> None:
    made = gate(0, 1)
    advance(made, 1, 50)
    assert advance(made, 0, MAX_TIMESTAMP) == 50
    assert end(made, 0) == 50
    assert set_idle(made, 1) == 50
    assert is_idle(made)
    assert set_idle(made, 1, False) == 50
    assert advance(made, 1, 60) == 60
    advance(made, 1, MAX_TIMESTAMP)
    assert end(made, 1) == MAX_TIMESTAMP


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.one_of(st.integers(0, 100), st.booleans(), st.none())), max_size=40
    )
)
def test_the_watermark_of_an_input_never_goes_back(steps: list[tuple[int, int | bool | None]]) -> None:
    made = gate(0, 0, 0)
    seen = MIN_TIMESTAMP
    for channel, step in steps:
        if made.channels[channel].channel.ended:
            continue
        if step is None:
            end(made, channel)
        elif isinstance(step, bool):
            set_idle(made, channel, step)
        else:
            advance(made, channel, step)
        valve = made.valves[0]
        assert valve.watermark >= seen
        seen = valve.watermark


def is_idle(made: InputGate) -> bool:
    return made.idle


def barrier(made: InputGate, channel: int, number: int) -> int | None:
    ready = made.barriers.barrier(channel, CheckpointBarrier(number, 0))
    return ready[0].barrier.checkpoint_id if ready else None


def blocked(made: InputGate) -> list[bool]:
    return [entry.channel.blocked for entry in made.channels]


def test_alignment_blocks_channels_until_all_have_delivered() -> None:
    made = gate(0, 0, 1)
    assert barrier(made, 1, 1) is None
    assert blocked(made) == [False, True, False]
    for entry in made.channels:
        entry.channel.append(RowBatch([entry]), 8)
    polled = [made.poll() for _ in range(3)]
    assert [found[0] for found in polled if found is not None] == [0, 2]
    assert barrier(made, 0, 1) is None
    assert barrier(made, 2, 1) == 1
    assert blocked(made) == [False] * 3
    last = made.poll()
    assert last is not None and last[0] == 1


def test_a_later_barrier_supersedes_and_an_earlier_one_is_dropped() -> None:
    made = gate(0, 0)
    assert barrier(made, 0, 1) is None
    assert barrier(made, 1, 2) is None
    assert blocked(made) == [False, True]
    assert barrier(made, 0, 1) is None
    assert blocked(made) == [False, True]
    assert barrier(made, 0, 2) == 2


def test_an_ended_channel_counts_as_arrived() -> None:
    made = gate(0, 0)
    barrier(made, 0, 1)
    made.end_channel(made.channels[1])
    assert [ready.barrier.checkpoint_id for ready in made.barriers.channel_ended()] == [1]
    assert blocked(made) == [False, False]
    assert barrier(made, 0, 2) == 2


def test_channels_are_taken_in_turn() -> None:
    made = gate(0, 0, 0)
    for number in range(3):
        for entry in made.channels:
            entry.channel.append(RowBatch([number]), 8)
    order = [found[0] for found in (made.poll() for _ in range(9)) if found is not None]
    assert order == [0, 1, 2] * 3
    assert made.poll() is None
