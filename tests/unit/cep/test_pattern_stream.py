"""Patterns in a program: rules by name on both backends, and refusals at the line that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from yarrow.cep import (
    CEP,
    AfterMatchSkipStrategy,
    IterativeCondition,
    MalformedPatternError,
    Pattern,
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternStream,
    PatternTimeoutFunction,
    RichIterativeCondition,
    TimedOutPartialMatchHandler,
    match,
)
from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.functions import RuntimeContext
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.pattern_spec import AllPatternOperator, PatternOperator
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

ROW = Types.TUPLE([Types.STRING(), Types.STRING()])
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
TIMED_OUT = OutputTag("timed out", Types.PICKLED_BYTE_ARRAY())
MAX = (1 << 63) - 1


def step(letters: str) -> Callable[[Any], bool]:
    return lambda row: row[1][0] in letters


def a_then_b(within: int | None = 10) -> Pattern:
    pattern = Pattern.begin("a").where(step("a")).followed_by("b").where(step("b"))
    return pattern if within is None else pattern.within(Time.milliseconds(within))


def names(match: Any) -> str:
    return " ".join(row[1] for rows in match.values() for row in rows)


class Both(PatternProcessFunction, TimedOutPartialMatchHandler):
    """Shows matches with their time, and partial ones in the side output."""

    def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        yield names(match), ctx.timestamp()

    def process_timed_out_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        yield TIMED_OUT, (names(match), ctx.timestamp())


@pytest.fixture(params=["hashmap", "rocksdb"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., OperatorHarness]]:
    """Opens a harness with a pattern on a backend."""
    opened: list[OperatorHarness] = []

    def start(
        pattern: Pattern,
        function: Any = None,
        *,
        behind: Callable[[PatternStream], PatternStream] = lambda stream: stream,
        keyed: bool = True,
        comparator: Any = None,
        **settings: Any,
    ) -> OperatorHarness:
        def build(rows: DataStream) -> list[DataStream]:
            stream = rows.key_by(lambda row: row[0]) if keyed else rows
            made = behind(CEP.pattern(stream, pattern, comparator)).process(function or Both())
            return [made, made.get_side_output(TIMED_OUT), made.get_side_output(LATE)]

        configuration = {"state.backend.type": request.param}
        opened.append(OperatorHarness(build, configuration=configuration, **settings))
        return opened[-1]

    yield start
    for harness in opened:
        harness.close()


def push(harness: OperatorHarness, *rows: tuple[str, int], key: str = "k") -> None:
    """Sends rows with their times."""
    harness.push(*[(key, name) for name, _ in rows], timestamps=[time for _, time in rows])


def metric(harness: OperatorHarness, name: str) -> float:
    (value,) = [value for metric, value in harness.metrics().items() if metric.endswith(f"CEP.{name}")]
    return value


def operator(harness: OperatorHarness) -> Any:
    return next(each for task in harness.tasks for each in task.chain.operators if each.name == "CEP")


def is_empty(harness: OperatorHarness) -> bool:
    """Whether no key has state or a timer."""
    found = operator(harness)
    state = found.context.state
    kept = [*state.state_keys("_pattern_pending_rows"), *state.state_keys("_pattern_partial_matches")]
    if found._ordered is not None:
        kept += [time for time, *_ in found._ordered.rows.freeze()]
    return not kept and not found._timers.event_timers and not found._timers.processing_timers


# ---------------------------------------------------------------------- event time


def test_rows_wait_for_the_watermark_and_come_in_order_of_time(run: Any) -> None:
    harness = run(a_then_b())
    push(harness, ("b1", 5), ("a1", 3), ("b2", 1))
    assert harness.output == []
    harness.watermark(4)
    assert harness.output == []
    harness.watermark(5)
    assert harness.output == [("a1 b1", 5)]
    assert harness.timestamps() == [5]
    assert is_empty(harness)


def test_keys_stand_apart(run: Any) -> None:
    harness = run(a_then_b())
    push(harness, ("a1", 1))
    push(harness, ("b1", 2), key="other")
    push(harness, ("b2", 3))
    harness.watermark(3)
    assert harness.output == [("a1 b2", 3)]


def test_a_row_at_or_below_the_watermark_is_late(run: Any) -> None:
    harness = run(a_then_b())
    harness.watermark(5)
    push(harness, ("a1", 5), ("a2", 4), ("a3", 6))
    assert metric(harness, "numLateRecordsDropped") == 2
    push(harness, ("b", 7))
    harness.watermark(7)
    assert harness.output == [("a3 b", 7)]


def test_late_rows_go_to_their_side_output(run: Any) -> None:
    harness = run(a_then_b(), behind=lambda stream: stream.side_output_late_data(LATE))
    harness.watermark(5)
    push(harness, ("a1", 5))
    assert harness.outputs(2) == [("k", "a1")]
    assert harness.timestamps(2) == [5]
    assert metric(harness, "numLateRecordsDropped") == 0


def test_a_partial_match_times_out_without_a_further_row(run: Any) -> None:
    harness = run(a_then_b())
    push(harness, ("a1", 3))
    harness.watermark(12)
    assert harness.outputs(1) == []
    harness.watermark(100)
    # The result bears the time at which it timed out, whatever the watermark.
    assert harness.outputs(1) == [("a1", 13)]
    assert harness.timestamps(1) == [13]
    assert is_empty(harness)


def test_a_row_exactly_the_limit_later_does_not_match(run: Any) -> None:
    harness = run(a_then_b())
    push(harness, ("a1", 3), ("b1", 13))
    harness.watermark(13)
    assert harness.output == []
    assert harness.outputs(1) == [("a1", 13)]


def test_a_pattern_that_ends_in_not_followed_by_matches_by_time(run: Any) -> None:
    pattern = Pattern.begin("a").where(step("a")).not_followed_by("b").where(step("b"))
    harness = run(pattern.within(Time.milliseconds(10)))
    push(harness, ("a1", 1), ("b", 5), ("a2", 6))
    harness.watermark(15)
    assert harness.output == []
    harness.watermark(16)
    assert harness.output == [("a2", 16)]
    assert harness.timestamps() == [16]
    assert is_empty(harness)


def test_at_the_end_of_the_input_all_time_has_passed(run: Any) -> None:
    harness = run(a_then_b())
    push(harness, ("a1", 3), ("a2", 50))
    harness.watermark(MAX)
    assert harness.outputs(1) == [("a1", 13), ("a2", 60)]
    assert is_empty(harness)


def test_results_are_not_behind_the_watermark(run: Any) -> None:
    harness = run(a_then_b())
    for time in range(0, 200, 7):
        push(harness, (f"{'ab'[time % 2]}{time}", time + 3), (f"a{time}x", time + 1), key=f"{time % 3}")
        before = len(harness.timestamps()), len(harness.timestamps(1))
        harness.watermark(time)
        new = harness.timestamps()[before[0] :] + harness.timestamps(1)[before[1] :]
        assert all(time - 7 < stamp <= time for stamp in new)


def test_a_comparator_orders_rows_of_one_time(run: Any) -> None:
    class ByName:
        def compare(self, one: Any, other: Any) -> int:
            return int(one[1] > other[1]) - int(one[1] < other[1])

    for comparator in (ByName(), ByName().compare):
        harness = run(a_then_b(), comparator=comparator)
        push(harness, ("b1", 3), ("a1", 3), ("a0", 4))
        harness.watermark(5)
        assert harness.output == [("a1 b1", 3)]
    harness = run(a_then_b())
    push(harness, ("b1", 3), ("a1", 3))
    harness.watermark(5)
    assert harness.output == []


def test_many_rows_of_a_key_run_in_pieces(run: Any) -> None:
    harness = run(a_then_b())
    rows = [(f"{'ab'[number % 2]}{number}", number // 3) for number in range(10_000)]
    push(harness, *rows)
    harness.watermark(10_000)
    whole = run(a_then_b())
    for at in range(0, 10_000, 999):
        push(whole, *rows[at : at + 999])
        whole.watermark(rows[at : at + 999][-1][1] - 1)
    whole.watermark(10_000)
    assert len(harness.output) == 5000
    assert sorted(harness.output) == sorted(whole.output)
    assert is_empty(harness)


def test_a_stream_without_keys_is_looked_through_as_a_whole(run: Any) -> None:
    harness = run(a_then_b(), keyed=False)
    push(harness, ("a1", 1))
    push(harness, ("b1", 2), key="other")
    harness.watermark(2)
    assert harness.output == [("a1 b1", 2)]


def test_a_key_has_at_most_so_many_partial_matches(run: Any) -> None:
    harness = run(a_then_b(None), behind=lambda stream: stream.max_partial_matches(2), function=Matches())
    push(harness, ("a1", 1), ("a2", 2), ("a3", 3), ("b", 4))
    harness.watermark(4)
    assert harness.output == ["a2 b", "a3 b"]
    assert metric(harness, "numPartialMatchesDropped") == 1


# ---------------------------------------------------------------------- processing time


def test_rows_come_by_the_clock_in_processing_time(run: Any) -> None:
    harness = run(a_then_b(1000), behind=lambda stream: stream.in_processing_time())
    harness.push(("k", "a1"), ("k", "b1"), ("k", "a2"))
    ((match, time),) = harness.output
    assert match == "a1 b1"
    assert harness.timestamps() == [None]
    harness.advance(0.9)
    assert harness.outputs(1) == []
    harness.advance(0.2)
    assert harness.outputs(1) == [("a2", time + 1000)]
    assert is_empty(harness)


def test_a_comparator_orders_rows_of_one_millisecond(run: Any) -> None:
    harness = run(
        a_then_b(),
        behind=lambda stream: stream.in_processing_time(),
        comparator=lambda one, other: (one[1] > other[1]) - (one[1] < other[1]),
    )
    harness.push(("k", "b1"), ("k", "a1"))
    assert harness.output == []
    harness.advance(0.001)
    assert [match for match, _ in harness.output] == ["a1 b1"]
    harness.advance(1)
    assert is_empty(harness)


def test_with_a_comparator_a_match_times_out_once_its_last_millisecond_has_passed(run: Any) -> None:
    harness = run(
        a_then_b(1000),
        behind=lambda stream: stream.in_processing_time(),
        comparator=lambda one, other: (one[1] > other[1]) - (one[1] < other[1]),
    )
    harness.push(("k", "a1"))
    harness.advance(0.001)
    harness.advance(0.999)
    assert harness.outputs(1) == []
    harness.advance(0.001)
    assert [match for match, _ in harness.outputs(1)] == ["a1"]
    assert is_empty(harness)


def test_a_match_leaves_when_the_partial_one_that_it_waits_for_is_dropped(run: Any) -> None:
    pattern = Pattern.begin("s", AfterMatchSkipStrategy.skip_to_first("s")).where(step("a"))
    pattern = pattern.followed_by_any("t").where(step("a")).optional().within(Time.milliseconds(10))
    harness = run(pattern, behind=lambda stream: stream.max_partial_matches(1))
    push(harness, ("a1", 1), ("a2", 2))
    harness.watermark(2)
    assert sorted(harness.output) == [("a1", 1), ("a1 a2", 2), ("a2", 2)]
    harness.watermark(12)
    assert harness.outputs(1) == [("a2", 12)]
    assert is_empty(harness)


def test_a_limit_that_no_time_reaches_sets_no_timer(run: Any) -> None:
    harness = run(a_then_b(2**63 - 1))
    push(harness, ("a1", 1))
    harness.watermark(MAX_TIMESTAMP)
    assert harness.outputs(1) == []
    assert not operator(harness)._timers.event_timers
    assert metric(harness, "numPartialMatchesDropped") == 0


# ---------------------------------------------------------------------- functions


class Matches(PatternProcessFunction):
    def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        return [names(match)]


def test_a_function_may_emit_aside(run: Any) -> None:
    class Aside(PatternProcessFunction):
        def process_match(self, match: Any, ctx: Any) -> Iterable[Any] | None:
            assert ctx.current_processing_time() >= 0
            return [(TIMED_OUT, "aside"), "plain"]

    harness = run(a_then_b(), Aside())
    push(harness, ("a1", 1), ("b1", 2))
    harness.watermark(2)
    assert (harness.output, harness.outputs(1)) == (["plain"], ["aside"])


def test_select_and_flat_select() -> None:
    class One(PatternSelectFunction):
        def select(self, match: Any) -> Any:
            return names(match)

    class Any_(PatternFlatSelectFunction):
        def flat_select(self, match: Any) -> Iterable[Any]:
            yield from match

    class Late(PatternTimeoutFunction):
        def timeout(self, match: Any, timestamp: int) -> Any:
            return names(match), timestamp

    class Many(PatternFlatTimeoutFunction):
        def timeout(self, match: Any, timestamp: int) -> Iterable[Any] | None:
            return None if names(match) == "a2" else [timestamp] * 2

    def build(rows: DataStream) -> list[DataStream]:
        found = CEP.pattern(rows.key_by(lambda row: row[0]), a_then_b())
        one = found.select(One(), TIMED_OUT, Late())
        called = found.select(names, TIMED_OUT, lambda match, timestamp: timestamp)
        flat = found.flat_select(Any_(), TIMED_OUT, Many())
        nothing = found.flat_select(lambda match: None)
        made = [one, called, flat]
        return [*made, *(each.get_side_output(TIMED_OUT) for each in made), nothing]

    with OperatorHarness(build) as harness:
        push(harness, ("a1", 1), ("b1", 2), ("a2", 3), ("a3", 4))
        harness.watermark(100)
        assert [harness.outputs(at) for at in range(7)] == [
            ["a1 b1"],
            ["a1 b1"],
            ["a", "b"],
            [("a2", 13), ("a3", 14)],
            [13, 14],
            [14, 14],
            [],
        ]


def test_rows_in_state_do_not_change_with_the_rows_of_the_program(run: Any) -> None:
    class Changing(PatternProcessFunction):
        def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
            yield names(match)
            for rows in match.values():
                rows[0][1] = "changed"

    row = ["k", "a1"]
    pattern = (
        Pattern.begin("a").where(step("a")).followed_by_any("b").where(step("b")).within(Time.seconds(1))
    )
    harness = run(pattern, Changing())
    harness.push(row, timestamps=[1])
    row[1] = "b"
    harness.push(["k", "b1"], timestamps=[2])
    harness.watermark(2)
    harness.push(["k", "b2"], timestamps=[3])
    harness.watermark(3)
    assert harness.output == ["a1 b1", "a1 b2"]


def test_functions_and_conditions_get_a_runtime_context(run: Any) -> None:
    seen: list[str] = []

    class Rich(RichIterativeCondition):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.counter = runtime_context.get_metrics_group().counter("asked")
            calls: list[Any] = [runtime_context.get_state, runtime_context.get_map_state]
            for call in calls:
                with pytest.raises(InvalidProgramError, match="have no state"):
                    call(None)
            with pytest.raises(InvalidProgramError, match="have no accumulators"):
                runtime_context.add_accumulator("n", None)  # type: ignore[arg-type]

        def filter(self, value: Any, ctx: IterativeCondition.Context) -> bool:
            self.counter.inc()
            return bool(value[1] == "a")

    class Opened(Matches):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.name = runtime_context.get_task_name_with_subtasks()

        def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
            return [bool(self.name)]

    harness = run(Pattern.begin("a").where(Rich()), Opened())
    push(harness, ("a", 1), ("b", 2))
    harness.watermark(2)
    assert harness.output == [True]
    assert metric(harness, "asked") == 2
    assert not seen


# ---------------------------------------------------------------------- bad input


def test_a_row_without_timestamp_fails_with_its_record(run: Any) -> None:
    harness = run(a_then_b())
    with pytest.raises(FragmentFailedError, match=r"(?s)a record has no timestamp.*\('k', 'a'\) \(key 'k'\)"):
        harness.push(("k", "a"))


def test_an_error_of_a_condition_names_operator_key_and_row(run: Any) -> None:
    conditions: list[Any] = [lambda row: row[7], lambda row, ctx: row[7]]
    for condition in conditions:
        harness = run(Pattern.begin("a").where(condition), Matches())
        push(harness, ("a1", 7))
        with pytest.raises(FragmentFailedError, match=r"(?s)IndexError.*'CEP'.*\('k', 'a1'\) \(key 'k'\)"):
            harness.watermark(7)


def test_an_error_in_a_whole_stream_names_no_key() -> None:
    def fragment(stream: DataStream) -> DataStream:
        return CEP.pattern(stream, Pattern.begin("a").where(lambda row: row[7])).process(Matches())

    with OperatorHarness(fragment) as harness:
        push(harness, ("a1", 7))
        with pytest.raises(FragmentFailedError) as caught:
            harness.watermark(7)
    assert caught.value.cause.record == "('k', 'a1')"


#: Only a payment has an amount: the condition on it fails for other rows.
SHOPPING = [("k", "other"), ("k", "quit"), ("k", "login"), ("k", "pay", 9), ("k", "quit")]


@pytest.mark.parametrize("event_time", [True, False])
def test_a_condition_sees_only_rows_that_a_partial_match_could_take_there(run: Any, event_time: bool) -> None:
    pattern = Pattern.begin("login").where(lambda row: row[1] == "login")
    pattern = pattern.followed_by("pay").where(lambda row: row[2] > 5)
    pattern = pattern.followed_by("quit").where(lambda row: row[1] == "quit").within(Time.seconds(10))
    found = ["login pay quit"]
    assert [names(each) for each in match(pattern, SHOPPING, timestamp=lambda row: 1)] == found
    behind = (lambda stream: stream) if event_time else PatternStream.in_processing_time
    harness = run(pattern, Matches(), behind=behind)
    for at, row in enumerate(SHOPPING):
        harness.push(row, timestamps=[at] if event_time else None)
    if event_time:
        harness.watermark(100)
    assert harness.output == found
    assert is_empty(harness)


@pytest.mark.parametrize("event_time", [True, False])
def test_a_condition_that_fails_where_a_partial_match_waits_fails_the_job(run: Any, event_time: bool) -> None:
    pattern = Pattern.begin("login").where(lambda row: row[1] == "login")
    pattern = pattern.followed_by("pay").where(lambda row: row[2] > 5).within(Time.seconds(10))
    harness = run(pattern, behind=(lambda stream: stream) if event_time else PatternStream.in_processing_time)
    with pytest.raises(FragmentFailedError, match=r"(?s)IndexError.*'CEP'.*\('k', 'other'\) \(key 'k'\)"):
        for at, name in enumerate(("login", "other")):
            harness.push(("k", name), timestamps=[at] if event_time else None)
        harness.watermark(100)


def test_an_error_of_a_function_names_operator_key_and_match(run: Any) -> None:
    class Fails(PatternProcessFunction):
        def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
            raise ValueError("no match")

    harness = run(a_then_b(), Fails())
    push(harness, ("a1", 7), ("b1", 8))
    with pytest.raises(FragmentFailedError, match=r"(?s)no match.*'CEP'.*'a1'.*\(key 'k'\)"):
        harness.watermark(8)


def test_partial_matches_have_no_main_output(run: Any) -> None:
    class Fails(Both):
        def process_timed_out_match(self, match: Any, ctx: Any) -> Iterable[Any]:
            return ["main"]

    harness = run(a_then_b(), Fails())
    push(harness, ("a1", 7))
    with pytest.raises(FragmentFailedError, match="it has no main output"):
        harness.watermark(80)


class Stamped(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 1


def rows(*, timed: bool = True) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    found = env.from_collection([("a", "b")], ROW)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())
    return found.assign_timestamps_and_watermarks(strategy) if timed else found


def test_a_pattern_becomes_one_operator() -> None:
    stream = CEP.pattern(rows().key_by(lambda row: row[0], Types.STRING()), a_then_b())
    keyed = operator_of(stream.side_output_late_data(LATE).select(names, output_type=Types.STRING()))
    assert type(keyed.spec) is PatternOperator
    assert (keyed.spec.late_tag, keyed.spec.event_time, keyed.spec.row_type) == ("late", True, ROW.to_spec())
    assert (keyed.name, keyed.parallelism, keyed.description) == ("CEP", 3, "CEP(a, b)")
    assert (keyed.output_type, keyed.state_key_type) == (Types.STRING(), Types.STRING())
    whole = operator_of(CEP.pattern(rows(), a_then_b()).in_processing_time().in_event_time().process(Both()))
    assert type(whole.spec) is AllPatternOperator
    assert (whole.parallelism, whole.max_parallelism) == (1, 1)


def test_loops_that_nothing_ends_are_refused() -> None:
    endless = CEP.pattern(rows(), Pattern.begin("a").one_or_more())
    with pytest.raises(MalformedPatternError, match="loop of 'a' has neither a time limit nor an end"):
        endless.select(names)
    endless.allow_endless().select(names)
    endless.max_partial_matches(10).select(names)
    CEP.pattern(rows(), Pattern.begin("a").one_or_more().until(step("b"))).select(names)


def test_event_time_needs_times() -> None:
    stream = CEP.pattern(rows(timed=False), a_then_b())
    with pytest.raises(
        InvalidProgramError, match=r"CEP\.pattern: nothing before it gives records a timestamp"
    ):
        stream.process(Both())
    stream.in_processing_time().process(Both())
    other = rows(timed=False)
    environment = other.get_execution_environment()
    environment.set_stream_time_characteristic(TimeCharacteristic.INGESTION_TIME)
    CEP.pattern(other, a_then_b()).process(Both())


def test_what_cannot_work_is_refused_by_name() -> None:
    stream = CEP.pattern(rows(), a_then_b(None))
    with pytest.raises(InvalidProgramError, match="the pattern has no time limit"):
        stream.process(Both())
    with pytest.raises(InvalidProgramError, match=r"max_partial_matches\(0\)"):
        stream.max_partial_matches(0)
    with pytest.raises(TypeError, match="come together"):
        stream.select(names, TIMED_OUT)
    with pytest.raises(TypeError, match="select takes an object, not a class"):
        stream.select(PatternSelectFunction)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="process takes a PatternProcessFunction"):
        stream.process(names)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="side_output_late_data takes an OutputTag"):
        stream.side_output_late_data("late")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a Pattern"):
        CEP.pattern(rows(), "a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a DataStream"):
        CEP.pattern("a", a_then_b())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a comparator"):
        CEP.pattern(rows(), a_then_b(), "name")  # type: ignore[arg-type]
