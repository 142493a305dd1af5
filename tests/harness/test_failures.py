"""A failing user function: its own traceback first, the right operator, the record at hand, one FAILED a task."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from yarrow.datastream import (
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
)
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause
from yarrow.testing.operator_harness import Fragment, FragmentFailedError, OperatorHarness


class UserError(Exception):
    pass


def user_code(value: Any) -> Any:
    raise UserError(f"no good: {value}")


def cause_of(
    fragment: Fragment, *rows: Any, then: Callable[[OperatorHarness], None] | None = None
) -> FailureCause:
    harness = None
    with pytest.raises(FragmentFailedError) as failed:
        harness = OperatorHarness(fragment)
        harness.push(*rows)
        if then is not None:
            then(harness)
        harness.end()
    if harness is not None:
        tasks = {name for name, _ in harness.states}
        harness.close()
        states = [state for _, state in harness.states]
        assert states.count(ExecutionState.FAILED) == 1
        assert sum(state.is_terminal for state in states) == len(tasks)
    return failed.value.cause


def assert_user_first(cause: FailureCause, function: str = "user_code") -> None:
    lines = cause.stacktrace.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert __file__ in lines[1]
    assert "yarrow chain" not in cause.stacktrace
    assert "chain_loops.py" not in cause.stacktrace
    assert function in cause.stacktrace
    assert "During handling" not in cause.stacktrace
    assert cause.exception_name.endswith("UserError")


class FailingReduce:
    def __call__(self, a: Any, b: Any) -> Any:
        return user_code(b)


class OnTimer(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield 1
        user_code("timer")


class Open(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        user_code("open")

    def map(self, value: Any) -> Any:
        return value


class Close(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        user_code("close")


class Failing(SinkFunction[Any]):
    def invoke(self, value: Any, context: Any) -> None:
        user_code(value)


class Generating(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value
        user_code(value)


def with_sink(stream: Any) -> Any:
    stream.add_sink(Failing()).name("culprit")
    return stream.map(lambda v: v)


def same(stream: Any) -> Any:
    return stream.map(lambda v: v).name("innocent")


CASES: dict[str, tuple[Fragment, str]] = {
    "map": (lambda s: same(same(s).map(user_code).name("culprit")), "7"),
    "filter": (lambda s: same(same(s).filter(user_code).name("culprit")), "7"),
    "flat_map": (lambda s: same(same(s).flat_map(user_code).name("culprit")), "7"),
    "generator": (lambda s: same(same(s).process(Generating()).name("culprit")), "7"),
    "key selector at the exchange": (
        lambda s: same(s).key_by(user_code).reduce(lambda a, b: a).name("culprit"), "7",
    ),
    "key selector of the keyed operator": (
        lambda s: s.key_by(user_code).reduce(lambda a, b: a).name("culprit"), "7"
    ),
    "reduce": (lambda s: same(s.key_by(lambda v: 1).reduce(FailingReduce()).name("culprit")), "7"),
    "sink": (with_sink, "7"),
    "on_timer": (
        lambda s: same(s.key_by(lambda v: v).process(OnTimer()).name("culprit")),
        "(timer at 1 of the key 7)",
    ),
    "open": (lambda s: same(same(s).map(Open()).name("culprit")), ""),
    "close": (lambda s: same(same(s).map(Close()).name("culprit")), ""),
    "partitioner": (
        lambda s: same(s).partition_custom(lambda k, n: user_code(k), lambda v: v).map(abs).name("culprit"), "7",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_failure_names_operator_and_record_below_the_users_traceback(case: str) -> None:
    fragment, record = CASES[case]
    cause = cause_of(fragment, 7, 7, then=lambda harness: harness.advance(1))
    assert cause.operator_name.removeprefix("Sink: ") == "culprit"
    assert_user_first(cause)
    assert cause.record == record
    if record:
        assert f"while it had the record {record}" in cause.stacktrace


def test_the_record_is_the_one_that_the_operator_got() -> None:
    cause = cause_of(lambda s: s.map(lambda v: ("mapped", v)).flat_map(lambda v: [v, "bad"]).map(picky), 1)
    assert cause.record == "'bad'"


def picky(value: Any) -> Any:
    return user_code(value) if value == "bad" else value


def test_a_reduce_that_fails_behind_a_slow_key_lookup_tells_of_no_other_error() -> None:
    """1.5 and Decimal 1.5 meet by way of the canonical key: that miss is none of the user's business."""
    import numpy as np

    cause = cause_of(
        lambda s: s.key_by(lambda v: v).reduce(FailingReduce()).name("culprit"),
        float("nan"),
        np.float64("nan"),
    )
    assert_user_first(cause)


def test_the_users_own_chain_of_errors_is_kept() -> None:
    def rethrowing(value: Any) -> Any:
        try:
            return {}[value]
        except KeyError as error:
            raise UserError("looked up") from error

    cause = cause_of(lambda s: s.map(rethrowing), "x")
    assert "KeyError: 'x'" in cause.stacktrace
    assert "direct cause" in cause.stacktrace


def test_system_exit_is_a_failure_of_its_operator() -> None:
    cause = cause_of(lambda s: same(s).map(lambda v: sys.exit(3)).name("culprit"), 1)
    assert cause.operator_name.removeprefix("Sink: ") == "culprit"
    assert cause.message == "user code called sys.exit(3)"


class Unprintable:
    def __repr__(self) -> str:
        raise SystemExit("no repr")

    __hash__ = None  # type: ignore[assignment]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raise_unprintable(value: Any) -> Any:
    raise UnprintableError


def test_a_record_and_an_error_that_cannot_be_printed() -> None:
    cause = cause_of(lambda s: s.map(raise_unprintable).name("culprit"), Unprintable())
    assert cause.operator_name.removeprefix("Sink: ") == "culprit"
    assert cause.record == "<Unprintable whose repr raised SystemExit>"
    assert cause.message == "<UnprintableError whose text raised ValueError>"


def test_a_long_record_is_told_in_short() -> None:
    cause = cause_of(lambda s: s.map(user_code), ["x" * 10_000] * 10_000)
    assert len(cause.record) <= 300


def test_an_answer_outside_the_channels_names_partitioner_and_key() -> None:
    cause = cause_of(
        lambda s: s.map(lambda v: v).name("culprit").partition_custom(lambda k, n: n, lambda v: v), "the key"
    )
    assert cause.exception_name.endswith("InvalidPartitionError")
    assert "'the key'" in cause.message
    assert "gave 1" in cause.message
    assert "'culprit'" in cause.message


def test_numpy_answers_of_a_partitioner_are_taken() -> None:
    import numpy as np

    with OperatorHarness(
        lambda s: s.partition_custom(lambda k, n: np.int64(k % n), lambda v: v).map(lambda v: v)
    ) as harness:
        harness.push(1, 2)
        assert harness.output == [1, 2]


def test_a_timer_on_a_stream_without_keys_is_refused() -> None:
    class Timed(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None:
            ctx.timer_service().register_processing_time_timer(1)

    cause = cause_of(lambda s: s.process(Timed()).name("unkeyed"), 1)
    assert "timers need a keyed stream" in cause.message
    assert cause.operator_name == "unkeyed"


def test_what_was_emitted_before_a_failure_was_not_lost_or_doubled() -> None:
    with OperatorHarness(lambda s: s.map(lambda v: picky(v))) as harness:
        harness.push(1, 2)
        with pytest.raises(FragmentFailedError):
            harness.push(3, "bad", 4)
        assert harness.output[:2] == [1, 2]
        assert harness.output.count(3) <= 1
        assert 4 not in harness.output


SIDE = OutputTag("side")


def test_a_failure_behind_a_side_output_names_its_operator() -> None:
    class Aside(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
            yield SIDE, ("aside", value)

    def fragment(stream: Any) -> Any:
        process = stream.process(Aside()).name("innocent")
        return process, process.get_side_output(SIDE).map(user_code).name("culprit")

    cause = cause_of(fragment, 1)
    assert cause.operator_name.removeprefix("Sink: ") == "culprit"
    assert cause.record == "('aside', 1)"
