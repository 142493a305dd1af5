"""InputDrift: the streams that are ahead of the slowest one by more than the bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.network.input_drift import InputDrift
from yarrow.runtime.data.elements import MIN_TIMESTAMP


def channel(stream: int, watermark: int, *, idle: bool = False, ended: bool = False) -> Any:
    return SimpleNamespace(
        stream=stream, watermark=watermark, idle=idle, held=False, channel=SimpleNamespace(ended=ended)
    )


def held(*channels: Any, drift: int = 10) -> list[bool]:
    bound = InputDrift(drift)
    bound.update(channels)
    found = [each.held for each in channels]
    assert bound.holds is any(found)
    return found


def test_a_stream_may_be_ahead_by_the_drift() -> None:
    assert held(channel(0, 110), channel(1, 100)) == [False, False]
    assert held(channel(0, 111), channel(1, 100)) == [True, False]


def test_the_slowest_channel_is_the_time_of_its_stream() -> None:
    assert held(channel(0, 500), channel(0, 105), channel(1, 100)) == [False, False, False]
    assert held(channel(0, 500), channel(0, 200), channel(1, 100)) == [True, True, False]


def test_a_stream_without_a_watermark_holds_the_others_back() -> None:
    assert held(channel(0, 5), channel(1, MIN_TIMESTAMP)) == [True, False]
    assert held(channel(0, MIN_TIMESTAMP), channel(1, MIN_TIMESTAMP)) == [False, False]


def test_idle_and_ended_streams_do_not_count() -> None:
    assert held(channel(0, 500), channel(1, 100, idle=True)) == [False, False]
    assert held(channel(0, 500), channel(1, 100, ended=True)) == [False, False]
    assert held(channel(0, 500), channel(1, 100, idle=True), channel(2, 300)) == [True, False, False]


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(-40, 40), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 20),
)
def test_the_slowest_stream_is_always_read(channels: list[tuple[int, int, bool, bool]], drift: int) -> None:
    made = [channel(stream, time, idle=idle, ended=ended) for stream, time, idle, ended in channels]
    held(*made, drift=drift)
    times: dict[int, int] = {}
    for each in made:
        if not each.idle and not each.channel.ended:
            times[each.stream] = min(each.watermark, times.get(each.stream, each.watermark))
    for each in made:
        ahead = times[each.stream] - min(times.values()) if each.stream in times else 0
        assert each.held is (ahead > drift)
