"""Broadcast streams: rules that reach every subtask, read by a keyed or an unkeyed stream, with timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types
from yarrow.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    DataStream,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    ValueStateDescriptor,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

RULES: MapStateDescriptor[str, int] = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
OTHER: MapStateDescriptor[str, int] = MapStateDescriptor("other", Types.STRING(), Types.LONG())
COUNT: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())
SIDE = OutputTag("side")


class Factors(BroadcastProcessFunction[Any, Any, Any]):
    """A rule (name, factor) multiplies the values of that name."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        factor = ctx.get_broadcast_state(RULES).get(value[0])
        if factor is None:
            yield SIDE, value
        else:
            yield value[0], value[1] * factor, ctx.timestamp(), ctx.current_watermark()

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Iterator[Any]:
        state = ctx.get_broadcast_state(RULES)
        state.put(*value)
        yield "rules", sorted(state.keys()), ctx.current_processing_time()


def unkeyed(data: Any, rules: Any) -> Any:
    processed = data.connect(rules.broadcast(RULES)).process(Factors())
    return processed, processed.get_side_output(SIDE)


def test_rules_change_what_becomes_of_values() -> None:
    with OperatorHarness(unkeyed, inputs=2) as harness:
        harness.push(("a", 1))
        harness.push(("a", 10), ("b", 5), input=1)
        harness.push(("a", 2), ("b", 3), ("c", 4), timestamps=[7, 8, 9])
        harness.watermark(5)
        harness.watermark(6, input=1)
        harness.push(("a", 100), input=1)
        harness.push(("a", 1), timestamps=[20])
        never = -(1 << 63)
        assert harness.outputs(0) == [
            ("rules", ["a"], 0),
            ("rules", ["a", "b"], 0),
            ("a", 20, 7, never),
            ("b", 15, 8, never),
            ("rules", ["a", "b"], 0),
            ("a", 100, 20, 5),
        ]
        assert harness.outputs(1) == [("a", 1), ("c", 4)]


class Writes(Factors):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put("x", 1)
        return iter(())


def test_the_other_side_cannot_write() -> None:
    def fragment(data: Any, rules: Any) -> Any:
        return data.connect(rules.broadcast(RULES)).process(Writes())

    with OperatorHarness(fragment, inputs=2) as harness, pytest.raises(FragmentFailedError) as failed:
        harness.push(("a", 1))
    assert "put" in failed.value.cause.message


class Undeclared(Factors):
    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(OTHER)
        return iter(())


def test_a_state_that_was_not_given_to_broadcast_is_named() -> None:
    with (
        OperatorHarness(
            lambda a, b: a.connect(b.broadcast(RULES)).process(Undeclared()), inputs=2
        ) as harness,
        pytest.raises(FragmentFailedError) as failed,
    ):
        harness.push(("a", 1), input=1)
    assert "there is no broadcast state 'other', only ['rules']" in failed.value.cause.message


class Limits(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Counts a key's records; a timer tells the count and the limit. A rule ("reset", _) clears all counts."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        assert ctx.get_current_key() == value[0]
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[1])

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        if value[0] == "keyed state":
            self.count.value()
        if value[0] != "reset":
            ctx.get_broadcast_state(RULES).put(*value)
            return None
        seen: list[Any] = []

        def take(key: Any, state: Any) -> None:
            seen.append((key, state.value()))
            state.clear()

        ctx.apply_to_keyed_state(COUNT, take)
        return [sorted(seen)]

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Any]:
        limit = ctx.get_broadcast_state(RULES).get("limit")
        yield ctx.get_current_key(), self.count.value(), limit, timestamp, ctx.time_domain().name


def keyed(data: Any, rules: Any) -> Any:
    return data.key_by(lambda value: value[0]).connect(rules.broadcast(RULES)).process(Limits())


def test_timers_of_the_keyed_side_read_the_rules() -> None:
    with OperatorHarness(keyed, inputs=2) as harness:
        harness.push(("a", 10), ("a", 10), ("b", 20))
        harness.push(("limit", 3), input=1)
        harness.watermark(15)
        assert harness.output == []
        harness.watermark(10, input=1)
        assert harness.output == [("a", 2, 3, 10, "EVENT_TIME")]
        harness.push(("limit", 4), input=1)
        harness.watermark(20, input=1)
        harness.watermark(20)
        assert harness.output[1:] == [("b", 1, 4, 20, "EVENT_TIME")]
        assert harness.timestamps() == [10, 20]


def test_a_broadcast_record_reaches_the_state_of_all_keys_by_apply_only() -> None:
    with OperatorHarness(keyed, inputs=2) as harness:
        harness.push(("a", 10), ("a", 10), ("b", 20))
        harness.push(("reset", 0), input=1)
        assert harness.output == [[("a", 2), ("b", 1)]]
        harness.push(("a", 10))
        harness.push(("reset", 0), input=1)
        assert harness.output[1:] == [[("a", 1)]]
        with pytest.raises(FragmentFailedError) as failed:
            harness.push(("keyed state", 0), input=1)
    assert "keyed state 'count' was used outside of a record or timer" in failed.value.cause.message


def test_streams_and_their_types() -> None:
    env = environment()
    numbers = env.from_sequence(1, 3)
    broadcast = numbers.broadcast(RULES, OTHER)
    assert isinstance(broadcast, BroadcastStream)
    assert broadcast.broadcast_state_descriptors == [RULES, OTHER]
    connected = numbers.connect(broadcast)
    assert isinstance(connected, BroadcastConnectedStream)
    assert connected.process(Factors()).get_name() == "Co-Process-Broadcast"
    on_keys = numbers.key_by(lambda x: x).connect(broadcast).process(Limits())
    assert on_keys.get_name() == "Keyed-Co-Process-Broadcast"


def test_the_function_must_fit_the_stream() -> None:
    env = environment()
    numbers = env.from_sequence(1, 3)
    broadcast = numbers.broadcast(RULES)
    with pytest.raises(TypeError, match="where the stream is keyed: call key_by before connect"):
        numbers.connect(broadcast).process(Limits())
    with pytest.raises(TypeError, match="takes a KeyedBroadcastProcessFunction where the stream is keyed"):
        numbers.key_by(lambda x: x).connect(broadcast).process(Factors())
    with pytest.raises(TypeError, match="takes a BroadcastProcessFunction, not"):
        numbers.connect(broadcast).process(print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="broadcast takes MapStateDescriptors"):
        numbers.broadcast(COUNT)  # type: ignore[call-overload]
    with pytest.raises(InvalidProgramError, match="two states are named 'rules'"):
        numbers.broadcast(RULES, RULES)
    with pytest.raises(InvalidProgramError, match="two execution environments"):
        environment().from_sequence(1, 3).connect(broadcast)


class Book(BroadcastProcessFunction[Any, Any, Any]):
    """Keeps rules as they are told: all of a dict, one less, or none; a value asks what is known of its name."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(RULES)
        yield value, rules.contains(value), rules.get(value), rules.is_empty(), sorted(rules.values())

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULES)
        if isinstance(value, dict):
            rules.put_all(value)
        else:
            rules.remove(value)


def booked(data: DataStream, rules: DataStream) -> DataStream:
    connected = data.connect(rules.broadcast(RULES))
    assert isinstance(connected, BroadcastConnectedStream)
    return connected.process(Book())


def test_rules_are_put_together_and_removed_one_by_one() -> None:
    with OperatorHarness(booked, inputs=2) as harness:
        harness.push("a")
        harness.push({"a": 1, "b": 2}, {"b": 3}, input=1)
        harness.push("a", "c")
        harness.push("a", "never put", input=1)
        harness.push("a", "b")
        harness.push("b", input=1)
        harness.push("b")
        assert harness.output == [
            ("a", False, None, True, []),
            ("a", True, 1, False, [1, 3]),
            ("c", False, None, False, [1, 3]),
            ("a", False, None, False, [3]),
            ("b", True, 3, False, [3]),
            ("b", False, None, True, []),
        ]
