"""Functions that the loop computes instead of calling them: results, failures, and where the loop calls them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.cep import CEP, Pattern
from yarrow.common import Types
from yarrow.common.time import Time
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.datastream import AggregateFunction, KeySelector, MapFunction, ReduceFunction
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.rpc.messages import FailureCause
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, OperatorHarness

CALLED = {"pipeline.inline-functions": "false"}


class Second(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return value[1]


class Inverse(MapFunction[Any, Any]):
    def __init__(self, dividend: int) -> None:
        self.dividend = dividend

    def map(self, value: Any) -> Any:
        return self.dividend / value


class Sum(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Mean(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        total, count = accumulator
        return total + value[1], count + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class First(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[0]  # type: ignore[no-any-return]


def stamped(stream: Any) -> Any:
    return stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(First())
    )


def in_patterns(stream: Any, first: Any, second: Any) -> Any:
    pattern = Pattern.begin("a").where(first).followed_by("b").where(second).within(Time.seconds(9))
    return CEP.pattern(stamped(stream).key_by(Second()), pattern).select(lambda found: found["b"][0])


def in_windows(stream: Any) -> Any:
    return stamped(stream).key_by(Second()).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))


def keyed_sums(stream: Any) -> Any:
    pairs = stream.map(lambda x: (x % 3, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
    return pairs.key_by(lambda pair: pair[0]).reduce(Sum()).filter(lambda pair: pair[1] % 2 == 0)


def output_of(
    fragment: Fragment, rows: list[Any], configuration: dict[str, str] | None = None
) -> tuple[list[Any], str]:
    with OperatorHarness(fragment, configuration=configuration) as harness:
        harness.push(*rows)
        # Watermarks come by the clock.
        harness.advance(1)
        harness.end()
        return harness.output, harness.generated_code


def cause_of(
    fragment: Fragment, rows: list[Any], configuration: dict[str, str] | None = None
) -> FailureCause:
    with pytest.raises(FragmentFailedError) as failed:
        output_of(fragment, rows, configuration)
    return failed.value.cause


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_keyed_job_computes_map_reduce_and_filter(backend: str) -> None:
    configuration = {"state.backend.type": backend}
    found, code = output_of(keyed_sums, list(range(12)), configuration)
    assert found == [(0, 2), (1, 2), (2, 2), (0, 4), (1, 4), (2, 4)]
    assert output_of(keyed_sums, list(range(12)), configuration | CALLED)[0] == found
    for call in ("map_", "combine_", "filter_"):
        assert call not in code
    assert "% 3, 1)" in code


def test_the_option_turns_it_off() -> None:
    _, code = output_of(keyed_sums, [1, 2], CALLED)
    for call in ("map_", "key_", "combine_", "filter_"):
        assert call in code


def test_a_tracer_sees_each_call() -> None:
    seen = []

    def trace(frame: Any, kind: str, argument: Any) -> None:
        if frame.f_code.co_qualname == "Inverse.map":
            seen.append(frame.f_locals["value"])

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        output_of(lambda s: s.map(Inverse(6)), [1, 2])
    finally:
        sys.settrace(former)
    assert seen == [1, 2]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_tracer_that_begins_later_sees_each_call_from_the_next_chunk_on(backend: str) -> None:
    seen = []

    def trace(frame: Any, kind: str, argument: Any) -> None:
        if frame.f_code.co_qualname == "Sum.reduce":
            seen.append(frame.f_locals["value2"])

    with OperatorHarness(keyed_sums, configuration={"state.backend.type": backend}) as harness:
        harness.push(*range(6))
        assert "combine_" not in harness.generated_code
        former = sys.gettrace()
        sys.settrace(trace)
        try:
            harness.push(*range(6, 9))
        finally:
            sys.settrace(former)
        assert seen == [(0, 1), (1, 1), (2, 1)]
        assert "combine_" in harness.generated_code
        # A debugger that has gone may come back.
        harness.push(*range(9, 12))
        harness.end()
        assert harness.output == [(0, 2), (1, 2), (2, 2), (0, 4), (1, 4), (2, 4)]


def test_a_profiler_sees_each_call() -> None:
    seen = []

    def profile(frame: Any, kind: str, argument: Any) -> None:
        if kind == "call" and frame.f_code.co_qualname == "Inverse.map":
            seen.append(frame.f_locals["value"])

    former = sys.getprofile()
    sys.setprofile(profile)
    try:
        output_of(lambda s: s.map(Inverse(6)), [1, 2])
    finally:
        sys.setprofile(former)
    assert seen == [1, 2]


FUNCTIONS: dict[str, tuple[Fragment, list[Any]]] = {
    "map by a lambda": (lambda s: s.map(lambda v: v + 1).map(lambda v: 6 / v), [1, -1]),
    "map by a method": (lambda s: s.map(Inverse(6)), [1, 0]),
    "filter": (lambda s: s.filter(lambda v: v[0] > 1 and v[1]), [(1, 2), (2,)]),
    "flat_map": (lambda s: s.flat_map(lambda v: [v[0], v["a"]]), [[1]]),
    "a name that nobody defines": (lambda s: s.map(lambda v: (v, undefined)), [1]),  # type: ignore[name-defined] # noqa: F821
    "a key selector of the exchange and the operator": (lambda s: s.key_by(Second()).reduce(Sum()), [(1, 2), (1,)]),
    "reduce": (lambda s: s.key_by(lambda v: v[0]).reduce(Sum()), [(1, 2), (1, "a")]),
    "a partitioner's key": (lambda s: s.map(lambda v: v).partition_custom(lambda key, n: 0, lambda v: v[7]), [(1, 2)]),
    "timestamps": (lambda s: stamped(s).map(lambda v: v), [(1, 2), ()]),
    "reduce of windows": (lambda s: in_windows(s).reduce(lambda a, b: (a[0], a[9])), [(1, 2), (2, 2)]),
    "aggregate of windows": (lambda s: in_windows(s).aggregate(Mean()), [(1, 2), (2, None), (3, None)]),
    "the first condition of a pattern": (
        lambda s: in_patterns(s, lambda v: v[2] / v[0] > 1, lambda v: v[2] == 0), [(1, 1, 2), (0, 1, 2)],
    ),
    "a later condition of a pattern": (
        lambda s: in_patterns(s, lambda v: v[2] == 0, lambda v: v[2] / v[0] > 1), [(1, 1, 0), (2, 1, "x"), (3, 2, 1)],
    ),
    "aggregate of counts": (
        lambda s: s.key_by(lambda v: v[0]).count_window(2).aggregate(Mean()), [(1, 2), (1, "a")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_failures_read_as_those_of_calls(name: str) -> None:
    fragment, rows = FUNCTIONS[name]
    inlined, called = cause_of(fragment, rows), cause_of(fragment, rows, CALLED)
    assert inlined.stacktrace == called.stacktrace
    assert inlined == called
    assert f'File "{__file__}"' in inlined.stacktrace


def test_a_pattern_computes_its_conditions() -> None:
    def fragment(stream: Any) -> Any:
        return in_patterns(stream, lambda v: v[2] == 0, lambda v: v[2] == 7)

    rows = [(1, 1, 0), (2, 1, 3), (3, 1, 7), (4, 2, 7)]
    found, code = output_of(fragment, rows)
    assert found == [(3, 1, 7)]
    assert "[2] == 7" in code
    assert "condition_" not in code
    called, code = output_of(fragment, rows, CALLED)
    assert called == found
    assert "condition_" in code


class OnlyOnce:
    """Fails the first time that somebody looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def value(self) -> int:
        self.looks += 1
        if self.looks == 1:
            raise ValueError("the first look")
        return 1


class ErrorThenExit(OnlyOnce):
    """Fails the first time that somebody looks at it, and exits the second time."""

    @property
    def value(self) -> int:
        if self.looks:
            raise SystemExit(3)
        return super().value


class Leaving:
    """Raises an exit at each look, and counts looks."""

    looks = 0

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __repr__(self) -> str:
        return "leaving"

    @property
    def value(self) -> int:
        Leaving.looks += 1
        raise self._error


EXITS: list[BaseException] = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit("stop"),
    BaseException("mine"),
]
LEFT: dict[str, tuple[Fragment, Any]] = {
    "map": (lambda s: s.map(lambda v: v.value).name("culprit"), lambda leaving: leaving),
    "reduce": (
        lambda s: s.key_by(lambda v: 1).reduce(lambda a, b: (a, b.value)).name("culprit"), lambda leaving: leaving,
    ),
    "reduce of windows": (
        lambda s: in_windows(s).reduce(lambda a, b: (a[0], b[2].value)).name("culprit"),
        lambda leaving: (1, 2, leaving),
    ),
    "aggregate of windows": (
        lambda s: in_windows(s).aggregate(Valued()).name("culprit"), lambda leaving: (1, 2, leaving),
    ),
}  # fmt: skip


class Valued(Mean):
    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value[2].value, accumulator[1] + 1


@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", LEFT)
def test_an_exit_ends_the_task_as_that_of_a_call_and_is_not_asked_for_again(
    name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragment, row_of = LEFT[name]
    causes = []
    for configuration in (None, CALLED):
        monkeypatch.setattr(Leaving, "looks", 0)
        row = row_of(Leaving(error.with_traceback(None)))
        causes.append(cause_of(fragment, [row, row], configuration))
        assert Leaving.looks == 1
    inlined, called = causes
    assert (inlined.exception_name, inlined.message, inlined.operator_name, inlined.record) == (
        called.exception_name, called.message, called.operator_name, called.record,
    )  # fmt: skip
    assert "culprit" in inlined.operator_name
    assert inlined.exception_name == f"builtins.{type(error).__name__}"


def test_an_exit_where_an_error_is_asked_for_again_leaves_the_error() -> None:
    cause = cause_of(lambda s: s.map(lambda v: v.value).name("culprit"), [ErrorThenExit()])
    assert "the first look" in cause.message
    assert "culprit" in cause.operator_name
    assert "it raised SystemExit" in cause.stacktrace


def test_letters_have_the_lines_of_the_function() -> None:
    """A function with `on_error` is called: its letter holds the traceback."""
    _, code = output_of(lambda s: s.map(lambda v: 1 / v).on_error("skip").map(lambda v: v + 1), [1, 0, 2])
    assert "map_" in code
    assert "+ 1" in code


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), max_size=12))
def test_inlined_and_called_chains_give_the_same(rows: list[tuple[int, int]]) -> None:
    def fragment(stream: Any) -> Any:
        kept = stream.map(lambda v: {"key": v[0], "n": v[1]}).filter(lambda v: v["n"] > 0 or v["key"] == 1)
        summed = kept.key_by(lambda v: f"{v['key']}").reduce(lambda a, b: {**a, "n": a["n"] + b["n"]})
        return summed.flat_map(lambda v: [v["n"]] if v["n"] % 2 else None)

    assert output_of(fragment, list(rows))[0] == output_of(fragment, list(rows), CALLED)[0]
