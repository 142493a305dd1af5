"""Time to live of states that triggers and window functions keep for a window, on both state backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.support.kept_windows import keeps_nothing
from tests.support.total import Total
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream
from yarrow.datastream.functions import ProcessWindowFunction
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

#: Milliseconds that values live.
LIFETIME = 1000


def lifetime(change: Callable[[Any], Any] = lambda builder: builder) -> StateTtlConfig:
    built: StateTtlConfig = change(StateTtlConfig.new_builder(Time.milliseconds(LIFETIME))).build()
    return built


def add(one: int, other: int) -> int:
    return one + other


class Keeps(ProcessWindowFunction[Any, Any, Any, Any]):
    """Puts the number of each firing into a state of the window, and shows what the state holds."""

    def __init__(self, kind: str, ttl: StateTtlConfig | None) -> None:
        self.kind = kind
        self.ttl = ttl

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        number = list(elements)[-1][1]
        states, kind = context.window_state(), self.kind
        if kind == "value":
            state = states.get_state(self.declared(ValueStateDescriptor("kept", Types.LONG())))
            found = state.value()
            if number:
                state.update((found or 0) + number)
        elif kind == "reducing":
            state = states.get_reducing_state(
                self.declared(ReducingStateDescriptor("kept", add, Types.LONG()))
            )
            found = state.get()
            if number:
                state.add(number)
        elif kind == "aggregating":
            state = states.get_aggregating_state(
                self.declared(AggregatingStateDescriptor("kept", Total(), Types.LONG()))
            )
            found = state.get()
            if number:
                state.add(number)
        elif kind == "list":
            state = states.get_list_state(self.declared(ListStateDescriptor("kept", Types.LONG())))
            found = list(state.get())
            if number:
                state.add(number)
        else:
            state = states.get_map_state(
                self.declared(MapStateDescriptor("kept", Types.LONG(), Types.STRING()))
            )
            found = sorted(state.keys())
            if number:
                state.put(number, "x")
        yield key, found

    def declared(self, descriptor: Any) -> Any:
        if self.ttl is not None:
            descriptor.enable_time_to_live(self.ttl)
        return descriptor


def windows(stream: DataStream) -> Any:
    """One long window, which fires for each record."""
    keyed = stream.key_by(lambda row: row[0])
    return keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).trigger(FiresAndEnds())


class FiresAndEnds(EventTimeTrigger):
    """Fires for each record."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE


SEEN: dict[str, tuple[Any, ...]] = {"value": (None, 1, 3, 3, None), "list": ([], [1], [2], [2], [])}
SEEN["reducing"] = SEEN["aggregating"] = SEEN["value"]
SEEN["map"] = SEEN["list"]


@pytest.fixture
def restarted() -> Iterator[Callable[..., OperatorHarness]]:
    """Restarts a harness with its own state; the new one is closed at the end."""
    opened: list[OperatorHarness] = []

    def restart(harness: OperatorHarness, **changes: Any) -> OperatorHarness:
        opened.append(harness.restarted(**changes))
        return opened[-1]

    yield restart
    for harness in opened:
        harness.close()


KINDS = pytest.mark.parametrize("kind", SEEN)


def found(harness: OperatorHarness) -> list[Any]:
    return [seen for _, seen in harness.output]


def show(harness: OperatorHarness, *steps: int) -> None:
    """Pushes numbers; between two of them the clock goes on by a time (ms)."""
    for at, step in enumerate(steps):
        if at % 2:
            harness.advance(step / 1000)
        else:
            harness.push(("a", step), timestamps=[1])


def is_empty(harness: OperatorHarness) -> bool:
    operator: Any = harness.tasks[0].chain.operators[0]
    return keeps_nothing(operator)


@KINDS
def test_values_of_a_window_expire(run: Any, kind: str) -> None:
    """A value expires as a whole, elements and entries one by one."""
    harness = run(lambda s: windows(s).process(Keeps(kind, lifetime())))
    show(harness, 1, 600, 2, 500, 0, 0, 0, 1000, 0)
    assert found(harness) == list(SEEN[kind])
    harness.watermark(100)
    assert is_empty(harness)


@KINDS
def test_a_snapshot_has_the_times_of_the_last_access(run: Any, restarted: Any, kind: str) -> None:
    harness = run(lambda s: windows(s).process(Keeps(kind, lifetime())))
    show(harness, 1, 600, 2)
    for _ in range(2):
        harness = restarted(harness)
    show(harness, 0, 500, 0, 500, 0)
    by_element = kind in ("list", "map")
    assert found(harness) == ([[1, 2], [2], []] if by_element else [3, 3, None])
    harness.watermark(100)
    assert is_empty(harness)


@KINDS
def test_a_time_to_live_is_added_over_a_savepoint(run: Any, restarted: Any, kind: str) -> None:
    """What had none counts as accessed at the restore."""
    harness = run(lambda s: windows(s).process(Keeps(kind, None)))
    show(harness, 1, 5000, 2, 5000, 0)
    both = found(harness)[-1]
    with_lifetime = restarted(harness, fragment=lambda s: windows(s).process(Keeps(kind, lifetime())))
    show(with_lifetime, 0, 999, 0, 1, 0)
    assert found(with_lifetime) == [both, both, SEEN[kind][0]]


@KINDS
def test_a_time_to_live_is_removed_over_a_savepoint_and_added_again(
    run: Any, restarted: Any, kind: str
) -> None:
    def ways(ttl: StateTtlConfig | None) -> Any:
        return lambda s: windows(s).process(Keeps(kind, ttl))

    harness = run(ways(lifetime()))
    show(harness, 1, 100, 2, 0, 0)
    both = found(harness)[-1]
    without = restarted(harness, fragment=ways(None))
    show(without, 0, 5000, 0)
    assert found(without) == [both, both]
    again = restarted(without, fragment=ways(lifetime()))
    show(again, 0, 1000, 0)
    assert found(again) == [both, SEEN[kind][0]]


def entries(harness: OperatorHarness) -> int:
    """Keys of the function's state in the backend, written or not."""
    return len(list(harness.tasks[0].chain.operators[0].context.state.state_keys("_window/kept")))


def test_expired_values_that_nobody_reads_leave_the_backend(run: Any) -> None:
    harness = run(lambda s: windows(s).process(Keeps("value", lifetime())))
    harness.push(*((key, 1) for key in range(50)), timestamps=[1] * 50)
    assert entries(harness) == 50
    harness.advance(1)
    for _ in range(3):
        harness.push(("a", 0), timestamps=[1])
    assert entries(harness) == 0


def test_a_snapshot_leaves_expired_values_out(run: Any, restarted: Any) -> None:
    config = lifetime(lambda builder: builder.disable_cleanup_in_background())
    harness = run(lambda s: windows(s).process(Keeps("value", config)))
    harness.push(*((key, 1) for key in range(50)), timestamps=[1] * 50)
    harness.advance(1)
    harness.push((1, 7), timestamps=[1])
    restored = restarted(harness)
    restored.push((1, 0), timestamps=[1])
    assert (found(restored), entries(restored)) == ([7], 1)


def test_reads_renew_and_expired_values_are_shown_where_the_program_says_so(run: Any) -> None:
    renewed = lifetime(lambda builder: builder.update_ttl_on_read_and_write())
    harness = run(lambda s: windows(s).process(Keeps("reducing", renewed)))
    show(harness, 1, 900, 0, 900, 0, 1000, 0)
    assert found(harness) == [None, 1, 1, None]
    shown = lifetime(
        lambda builder: builder.return_expired_if_not_cleaned_up().disable_cleanup_in_background()
    )
    harness = run(lambda s: windows(s).process(Keeps("reducing", shown)))
    show(harness, 1, 1000, 0, 0, 5, 0, 0)
    assert found(harness) == [None, 1, None, 5]


class Limit(Trigger[Any, Any]):
    """Fires when the numbers of a second add up to 10."""

    def __init__(self) -> None:
        self.sums: Any = ReducingStateDescriptor("sums", add, Types.LONG())
        self.sums.enable_time_to_live(lifetime())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        sums = ctx.get_partitioned_state(self.sums)
        sums.add(element[1])
        return TriggerResult.FIRE if sums.get() >= 10 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.sums)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.sums).clear()


def test_state_of_a_trigger_expires(run: Any) -> None:
    def sums(stream: DataStream) -> Any:
        keyed = stream.key_by(lambda row: row[0])
        windows_at_hand = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        return windows_at_hand.trigger(Limit()).reduce(lambda a, b: (a[0], a[1] + b[1]))

    harness = run(sums)
    show(harness, 6, 1000, 6, 999, 4)
    assert harness.output == [("a", 16)]


def test_merged_state_of_a_trigger_has_what_has_not_expired(run: Any) -> None:
    def sums(stream: DataStream) -> Any:
        keyed = stream.key_by(lambda row: row[0])
        sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
        return sessions.trigger(Limit()).reduce(lambda a, b: (a[0], a[1] + b[1]))

    harness = run(sums)
    harness.push(("a", 6), timestamps=[0])
    harness.advance(1)
    harness.push(("a", 1), ("b", 6), timestamps=[15, 0])
    harness.push(("b", 1), timestamps=[15])
    harness.push(("a", 3), ("b", 3), timestamps=[8, 8])
    assert harness.output == [("b", 10)]


def test_two_times_to_live_of_one_state_are_refused(run: Any) -> None:
    class Twice(Keeps):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            yield from super().process(key, context, elements)
            self.ttl = None

    harness = run(lambda s: windows(s).process(Twice("value", lifetime())))
    with pytest.raises(FragmentFailedError, match="another time to live"):
        show(harness, 1, 0, 1)
