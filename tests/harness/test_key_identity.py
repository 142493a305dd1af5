"""Keys that are equal in Python are one key on every path: state of reduce, value state, timers, routing."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tests.support.stored_keys import key_groups
from yarrow.common.types import Row
from yarrow.container.chain.routing import KeyTargets
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from yarrow.datastream.state import ValueState
from yarrow.runtime.data.key_groups import group_of_raw_key
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any


#: Each group is one key; no two groups are the same.
GROUPS: dict[str, list[Any]] = {
    "one": [1, 1.0, True, np.int64(1), np.int8(1), np.float32(1), np.bool_(True), Decimal("1.00"), Level.LOW],
    "zero": [0, 0.0, -0.0, False, np.float64(-0.0)],
    "not a number": [math.nan, float("nan"), np.float64("nan"), np.float32("nan"), Decimal("nan")],
    "half": [0.5, np.float32(0.5), Decimal("0.5")],
    "none": [None],
    "text": ["a", np.str_("a"), Word.A],
    "bytes": [b"a", np.bytes_(b"a")],
    "pair": [(1, "a"), Pair(1, "a"), (1.0, np.str_("a")), Pair(True, Word.A)],
    "pair with NaN": [(math.nan, 0), (float("nan"), -0.0)],
    "point": [Point(1, 2), Point(1.0, 2), Point(True, np.int32(2))],
    "row": [Row(1, "a"), Row(1.0, "a")],
    "named row": [Row(x=1, y="a"), Row(x=True, y="a")],
    "enum": [Colour.RED],
}
RECORDS = [(key, name) for name, keys in GROUPS.items() for key in keys]
COUNTS = {name: len(keys) for name, keys in GROUPS.items()}


def test_reduce_state() -> None:
    with OperatorHarness(
        lambda s: (
            s.map(lambda r: (*r, 1)).key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1], a[2] + b[2]))
        )
    ) as harness:
        harness.push(*RECORDS, *reversed(RECORDS))
        counts: dict[str, int] = {}
        for _, name, count in harness.output:
            counts[name] = max(counts.get(name, 0), count)
        assert counts == {name: 2 * count for name, count in COUNTS.items()}


class Counted(KeyedProcessFunction[Any, Any, Any]):
    """Counts in value state; the timer tells the count once a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        _, count = self.state.value() or (None, 0)
        self.state.update((value[1], count + 1))
        ctx.timer_service().register_processing_time_timer(1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield self.state.value()
        self.state.clear()
        yield self.state.value()


def test_value_state_and_timers() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda r: r[0]).process(Counted())) as harness:
        harness.push(*RECORDS)
        harness.advance(1)
        assert dict(harness.output[::2]) == COUNTS
        assert len(harness.output) == 2 * len(GROUPS)
        assert set(harness.output[1::2]) == {None}


def test_routing_of_rows() -> None:
    targets = KeyTargets(list(range(64)), 4096)

    def target(key: Any) -> int:
        try:
            return targets.cache[key]
        except (KeyError, TypeError):
            return targets.miss(key)

    for _ in range(2):  # by way of the slow path, then of the cache
        for keys in GROUPS.values():
            assert len({target(key) for key in keys}) == 1
            assert (
                len({targets.by_group[group_of_raw_key(key, 4096)] for key in keys} | {target(keys[0])}) == 1
            )
    assert len({target(keys[0]) for keys in GROUPS.values()}) > len(GROUPS) // 2


@pytest.mark.parametrize(
    ("column", "equal"),
    [
        (pa.array([1, 0], pa.int8()), [1, 0]),
        (pa.array([1.0, -0.0, math.nan, 0.5]), [1, 0, math.nan, 0.5]),
        (pa.array([True, False]), [1, 0]),
        (pa.array(["a", None]), ["a", None]),
        (pa.array([b"a", None], pa.binary()), [b"a", None]),
        (pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
    ],
)
def test_routing_of_columns_agrees_with_rows(column: pa.Array, equal: list[Any]) -> None:
    by_rows = KeyTargets(list(range(4096)), 4096)
    assert list(key_groups(column, 4096)) == [by_rows.miss(key) for key in equal]


class Timed(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(1)


class Mutable:
    pass


UNSUPPORTED = [[1], {1: 2}, {1}, bytearray(b"a"), Mutable(), (1, [2])]


@pytest.mark.parametrize("key", UNSUPPORTED, ids=[type(key).__name__ for key in UNSUPPORTED])
@pytest.mark.parametrize("path", ["reduce", "sum", "value state", "timer", "routing"])
def test_unsupported_key_is_refused_naming_operator_type_and_remedy(key: Any, path: str) -> None:
    def fragment(stream: Any) -> Any:
        if path == "routing":
            stream = stream.map(lambda v: v).name("before")
        keyed = stream.key_by(lambda v: v[0])
        if path == "sum":
            return keyed.sum(1).name("keyed one")
        if path in ("value state", "timer"):
            return keyed.process(Counted() if path == "value state" else Timed()).name("keyed one")
        return keyed.reduce(lambda a, b: a).name("keyed one")

    offender = key[1] if type(key) is tuple else key
    with OperatorHarness(fragment) as harness, pytest.raises(FragmentFailedError) as failed:
        harness.push((key, 1))
    cause = failed.value.cause
    assert cause.operator_name == "keyed one"
    assert ("in the exchange before operator 'keyed one'" in cause.stacktrace) is (path == "routing")
    assert cause.message.startswith(f"Operator '{cause.operator_name}': ")
    assert type(offender).__qualname__ in cause.message
    assert "Key by" in cause.message
    assert "During handling" not in cause.stacktrace
