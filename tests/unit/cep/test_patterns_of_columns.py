"""Patterns of columns in a program: the results of patterns of rows, the rows that become objects, and refusals."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.pattern_model import Whole
from tests.unit.cep.test_pattern_matcher_against_model import LETTERS, strategies, wholes
from yarrow.cep import (
    CEP,
    AfterMatchSkipStrategy,
    MalformedPatternError,
    Pattern,
    PatternProcessFunction,
    PatternStream,
    TimedOutPartialMatchHandler,
    WithinType,
    match,
)
from yarrow.common import Time, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.operators.columnar_pattern import (
    columnar_pattern_operator,
    leaving_rows,
    sequence_matching,
)
from yarrow.container.operators.columnar_pattern.columnar_pattern_operator import (
    ColumnarPatternMatchingOperator,
)
from yarrow.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.table.expressions import col
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness

SCHEMA = pa.schema([("k", pa.int64()), ("letter", pa.string()), ("number", pa.int64())])
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
TIMED_OUT = OutputTag("timed out", Types.PICKLED_BYTE_ARRAY())
FAR = 10**9

#: (key, letter, number)
Record = tuple[Any, Any, int]


class Both(PatternProcessFunction, TimedOutPartialMatchHandler):
    """Shows the numbers of a match with its time, and those of partial ones in the side output."""

    def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        yield shown(match), ctx.timestamp()

    def process_timed_out_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        yield TIMED_OUT, (shown(match), ctx.timestamp())


def shown(match: Any) -> Any:
    return tuple((name, tuple(row.number for row in rows)) for name, rows in match.items())


class Matches(PatternProcessFunction):
    """Shows matches alone: partial ones that time out are not asked for."""

    process_match = Both.process_match


def on(letters: str) -> Any:
    return col("letter").in_(*letters)


def a_then_b(within: int = 10) -> Pattern:
    pattern = Pattern.begin("a").where(on("a")).followed_by("b").where(on("b"))
    return pattern.within(Time.milliseconds(within))


def harness(
    pattern: Pattern,
    function: Any = None,
    *,
    columns: bool = True,
    behind: Callable[[PatternStream], PatternStream] = lambda stream: stream,
    backend: str = "hashmap",
    schema: pa.Schema = SCHEMA,
) -> OperatorHarness:
    """The outputs are matches, partial ones that have timed out, and late rows."""

    def build(batches: DataStream) -> list[DataStream]:
        keyed = batches.key_by("k") if columns else batches.to_rows().key_by(lambda row: row.k)
        made = behind(CEP.pattern(keyed, pattern)).process(function or Both())
        return [made, made.get_side_output(TIMED_OUT), made.get_side_output(LATE)]

    return OperatorHarness(build, types=[schema], configuration={"state.backend.type": backend})


def batch(rows: list[Record], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    found = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(found, schema, strict=True)],
        schema=schema,
    )


def push(harness: OperatorHarness, rows: list[Record], times: list[int | None]) -> None:
    harness.send(ArrowBatch(batch(rows), pa.array(times, pa.int64())))


def operator(harness: OperatorHarness) -> ColumnarPatternMatchingOperator:
    (found,) = [
        each
        for task in harness.tasks
        for each in task.chain.operators
        if isinstance(each, ColumnarPatternMatchingOperator)
    ]
    return found


def objects(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes the numbers of rows that become objects."""
    made: list[int] = []
    plain = ColumnarPatternMatchingOperator._rows_of

    def noted(self: ColumnarPatternMatchingOperator, records: pa.RecordBatch) -> Any:
        made.extend(records.column("number").to_pylist())
        return plain(self, records)

    monkeypatch.setattr(ColumnarPatternMatchingOperator, "_rows_of", noted)
    return made


@pytest.fixture
def by_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs plain sequences by the table of states."""
    monkeypatch.setattr(columnar_pattern_operator, "why_no_plain_sequence", lambda *_: "a test")


# ---------------------------------------------------------------------- rows and columns give the same

rows_of = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.sampled_from(LETTERS), st.integers(0, 12)), max_size=8
)
steps_of = st.lists(st.one_of(rows_of, rows_of, st.integers(0, 14)), max_size=7)


def results(harness: OperatorHarness, steps: list[Any]) -> list[Any]:
    """Matches, partial ones and late rows, each with its time."""
    number = 0
    for step in [*steps, FAR]:
        if isinstance(step, int):
            harness.watermark(step)
        elif step:
            push(
                harness,
                [(key, letter, number + at) for at, (key, letter, _) in enumerate(step)],
                [time for _, _, time in step],
            )
            number += len(step)
    found: list[Any] = [
        Counter(zip(harness.outputs(at), harness.timestamps(at), strict=True)) for at in (0, 1)
    ]
    return [*found, number]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    whole=wholes(),
    skip=st.none() | strategies,
    steps=steps_of,
    mixed=st.sets(st.sampled_from(LETTERS)),
    most=st.none() | st.integers(1, 3),
    shows=st.sampled_from([Both, Matches]),
)
def test_rows_and_columns_have_the_same_results(
    backend: str, whole: Whole, skip: Any, steps: list[Any], mixed: set[str], most: int | None, shows: Any
) -> None:
    if skip is not None and (skip.pattern_name is None or not whole.kinds[0].group):
        whole = Whole(whole.kinds, whole.within, skip)

    def bounded(stream: PatternStream) -> PatternStream:
        stream = stream.side_output_late_data(LATE)
        return stream if most is None else stream.max_partial_matches(most)

    def of_row(letters: str) -> Any:
        return lambda row: row.letter in letters

    def of_columns(letters: str) -> Any:
        return of_row(letters) if letters[0] in mixed else on(letters)

    with harness(
        whole.pattern_of(of_row), shows(), columns=False, behind=bounded, backend=backend
    ) as by_rows:
        expected = results(by_rows, steps)
        late = Counter(row.number for row in by_rows.outputs(2))
    with harness(whole.pattern_of(of_columns), shows(), behind=bounded, backend=backend) as by_columns:
        assert results(by_columns, steps) == expected
        found = [number for made in by_columns.record_batches(2) for number in made["number"].to_pylist()]
        assert Counter(found) == late
        left = operator(by_columns)
        assert not list(left._matches.all_keys())
        assert not (isinstance(left._live, set) and left._live)
        assert left._pending.first_time is None
        assert left._timers.event_timers.next_timestamp is None
        assert left._held is None or left._held.first_end is None
        assert left._sequence is None or left._sequence.row_count == 0


# ---------------------------------------------------------------------- rules


def test_matches_bear_the_time_of_their_last_row_and_partial_ones_their_deadline() -> None:
    with harness(a_then_b()) as job:
        push(job, [(1, "a", 0), (1, "b", 1), (2, "a", 2)], [5, 3, 4])
        job.watermark(9)
        assert job.output == []
        push(job, [(1, "b", 3)], [14])
        job.watermark(14)
        assert list(zip(job.output, job.timestamps(), strict=True)) == [
            (((("a", (0,)), ("b", (3,))), 14), 14)
        ]
        assert job.outputs(1) == [((("a", (2,)),), 14)]


def test_a_null_is_no_match_and_null_keys_are_keys() -> None:
    with harness(a_then_b()) as job:
        push(job, [(None, "a", 0), (None, None, 1), (None, "b", 2), (1, "b", 3)], [1, 2, 3, 4])
        job.watermark(4)
        assert job.output == [((("a", (0,)), ("b", (2,))), 3)]


def test_arrow_expressions_are_conditions_of_steps() -> None:
    letter = pc.field("letter")
    pattern = Pattern.begin("a").where(letter == "a").followed_by("many").where(letter.isin(["b"]))
    pattern = pattern.or_where(pc.field("number") > 6).one_or_more().until(pc.starts_with(letter, "e"))
    with harness(pattern.within(Time.milliseconds(100))) as job:
        push(
            job,
            [(1, "a", 0), (1, None, 1), (1, "b", 2), (1, "x", 7), (1, "end", 9), (1, "b", 4)],
            [*range(6)],
        )
        job.watermark(FAR)
        assert [shown for shown, _ in job.output] == [
            (("a", (0,)), ("many", (2,))),
            (("a", (0,)), ("many", (2, 7))),
        ]


def test_late_rows_leave_as_batches_and_are_counted() -> None:
    with harness(a_then_b(), behind=lambda stream: stream.side_output_late_data(LATE)) as job:
        job.watermark(5)
        push(job, [(1, "a", 0), (1, "x", 1), (1, "a", 2)], [5, 4, 6])
        (late,) = job.record_batches(2)
        assert late.to_pylist() == [
            {"k": 1, "letter": "a", "number": 0},
            {"k": 1, "letter": "x", "number": 1},
        ]
    with harness(a_then_b()) as job:
        job.watermark(5)
        push(job, [(1, "a", 0), (1, "x", 1)], [5, 4])
        assert operator(job).late_dropped == 2


def test_keys_of_several_columns() -> None:
    def build(batches: DataStream) -> DataStream:
        return CEP.pattern(batches.key_by("k", "letter"), pattern).process(Both())

    pattern = Pattern.begin("one").where(col("number") < 5).next("other").where(col("number") >= 5)
    pattern = pattern.within(Time.milliseconds(10))
    with OperatorHarness(build, types=[SCHEMA]) as job:
        push(job, [(1, "a", 0), (1, "b", 7), (1, "a", 8)], [1, 2, 3])
        job.watermark(3)
        assert job.output == [((("one", (0,)), ("other", (8,))), 3)]


def test_records_are_rows_with_the_names_of_columns() -> None:
    with harness(a_then_b(), Rows()) as job:
        push(job, [(1, "a", 0), (1, "b", 1)], [1, 2])
        job.watermark(2)
        assert job.output == [{"k": 1, "letter": "a", "number": 0}]


class Numbers(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


class Rows(PatternProcessFunction):
    def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
        yield match["a"][0].as_dict()


def test_rows_of_one_key_beyond_thousands_run_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving_rows, "MOST_ROWS", 3)
    strict = Pattern.begin("a").where(on("a")).next("b").where(on("b")).within(Time.milliseconds(100))
    with harness(strict) as job:
        letters, times = "ababababab", [1, 2, 3, 3, 3, 3, 4, 5, 6, 7]
        push(job, [(1, letter, at) for at, letter in enumerate(letters)], list(times))
        task = operator(job)
        task.on_watermark(50)
        pieces = [len(list(task.fire_event_timers(0.0))) for _ in range(4)]
        # The rows of time 3 stand together.
        assert pieces == [3, 1, 1, 0]


@pytest.mark.parametrize("function", [Both, Matches])
@pytest.mark.parametrize("form", ["sequence", "states"])
def test_a_cut_between_pieces_puts_rows_back(
    function: Any, form: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_matching, "_FIRST_PIECE", 4)
    if form == "states":
        request.getfixturevalue("by_states")
    with harness(a_then_b(1000), function()) as job:
        push(job, [(key, "a", key) for key in range(300)], [1] * 300)
        push(job, [(key, "b", 300 + key) for key in range(300)], [*range(2, 302)])
        task: Any = operator(job)
        task.on_watermark(250)
        # A deadline that has passed: a few rows leave in each slice.
        left: list[Any] = []
        while not left:
            left += list(task.fire_event_timers(0.0))
        assert len(left) < 249
        assert task.event_timers_due
        task.snapshot_state(1)
        left += list(task.fire_event_timers(inf))
        assert sorted(left) == [
            (((("a", (key,)), ("b", (300 + key,))), key + 2), key + 2) for key in range(249)
        ]
        assert not task.event_timers_due
        job.watermark(FAR)
        assert len(job.output) == 51


def test_conditions_of_columns_and_of_rows_join_in_one_step() -> None:
    first = Pattern.begin("a").where(on("a")).where(lambda row: row.number > 1).or_where(on("s"))
    second = first.followed_by("b").where(lambda row: row.number > 5).or_where(on("b")).where(on("bc"))
    with harness(second.within(Time.milliseconds(100))) as job:
        rows = [(1, "a", 0), (2, "a", 2), (3, "s", 0), (1, "b", 3), (2, "x", 6), (3, "c", 7), (2, "b", 4)]
        push(job, rows, [*range(7)])
        job.watermark(FAR)
        assert sorted(job.output) == [((("a", (0,)), ("b", (7,))), 5), ((("a", (2,)), ("b", (4,))), 6)]


# ---------------------------------------------------------------------- which rows become objects


def test_of_a_plain_sequence_only_rows_of_matches_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    made = objects(monkeypatch)
    with harness(a_then_b(100).followed_by("c").where(on("c"))) as job:
        push(job, [(2, "b", 0), (1, "a", 1), (1, "x", 2), (1, "b", 3), (2, "a", 4), (3, "c", 5)], [*range(6)])
        assert operator(job)._pending.entry_count == 5
        job.watermark(6)
        assert made == []
        push(job, [(1, "a", 6), (1, "c", 7), (2, "c", 8)], [7, 8, 9])
        job.watermark(9)
        assert made == [1, 3, 7]
        # The others time out.
        job.watermark(FAR)
        assert made == [1, 3, 7, 4, 6]
        assert job.outputs(1) == [((("a", (4,)),), 104), ((("a", (6,)),), 107)]


@pytest.mark.usefixtures("by_states")
def test_of_relaxed_steps_only_rows_that_may_be_taken_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    made = objects(monkeypatch)
    with harness(a_then_b(100)) as job:
        # A key without a beginning, and rows before the first one.
        push(job, [(2, "b", 0), (1, "b", 1), (1, "x", 2), (1, "a", 3), (1, "x", 4), (1, "b", 5)], [*range(6)])
        assert operator(job)._pending.entry_count == 4
        job.watermark(6)
        push(job, [(1, "b", 6), (2, "b", 7), (1, "a", 8)], [7, 8, 9])
        job.watermark(9)
    assert made == [3, 5, 8]


@pytest.mark.usefixtures("by_states")
def test_without_timed_out_results_only_rows_of_keys_that_may_match_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = objects(monkeypatch)
    pattern = a_then_b(100).followed_by("c").where(on("c"))
    with harness(pattern, Matches()) as job:
        push(job, [(1, "a", 0), (2, "a", 1), (2, "c", 2), (3, "a", 3), (3, "b", 4), (3, "c", 5)], [*range(6)])
        job.watermark(6)
        assert made == [3, 4, 5]
        push(job, [(1, "b", 6), (2, "c", 7)], [7, 8])
        job.watermark(50)
        assert made == [3, 4, 5]
        push(job, [(1, "c", 8), (2, "b", 9)], [99, 102])
        job.watermark(102)
        assert made == [3, 4, 5, 0, 6, 8]
        assert [time for _, time in job.output] == [5, 99]


@pytest.mark.usefixtures("by_states")
def test_a_key_with_many_rows_that_wait_for_a_match_goes_to_the_matcher() -> None:
    with harness(a_then_b(1000), Matches()) as job:
        for at in range(40):
            push(job, [(1, "a", at)], [at])
            job.watermark(at)
        assert list(operator(job).context.state.state_keys("_pattern_partial_matches")) == [1]
        push(job, [(1, "b", 40)], [40])
        job.watermark(40)
        assert len(job.output) == 40


def test_of_strict_steps_all_rows_of_keys_with_a_partial_match_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made = objects(monkeypatch)
    pattern = Pattern.begin("a").where(on("a")).next("b").where(on("b")).within(Time.milliseconds(100))
    with harness(pattern) as job:
        push(job, [(1, "a", 0), (2, "x", 1), (1, "x", 2), (1, "b", 3), (2, "a", 4)], [*range(5)])
        job.watermark(4)
        assert sorted(made) == [0, 2, 4]
        push(job, [(1, "b", 5), (2, "b", 6), (2, "x", 7)], [5, 6, 7])
        job.watermark(7)
        assert job.output == [((("a", (4,)), ("b", (6,))), 6)]
    assert sorted(made) == [0, 2, 4, 6]


def test_a_condition_is_computed_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["yarrow.container.operators.columnar_pattern.column_conditions"]
    plain, asked = module.truth_of, []

    def noted(condition: Any, records: pa.RecordBatch) -> Any:
        asked.append((condition, records.num_rows))
        return plain(condition, records)

    monkeypatch.setattr(module, "truth_of", noted)
    pattern = (
        Pattern.begin("a").where(on("a")).followed_by("b").where(on("b")).times(2).within(Time.seconds(1))
    )
    with harness(pattern.next("c").where(on("a"))) as job:
        push(job, [(1, letter, at) for at, letter in enumerate("abba")], [*range(4)])
        for time in range(5):
            job.watermark(time)
        assert len(job.output) == 1
    assert asked == [(on("a"), 4), (on("b"), 4)]


# ---------------------------------------------------------------------- which way a pattern takes


def test_the_plan_says_why_a_pattern_runs_row_by_row() -> None:
    def description(pattern: Pattern, most: int | None = None) -> str:
        found = CEP.pattern(stream(timed=True).key_by("k"), pattern)
        found = found if most is None else found.max_partial_matches(most)
        return str(operator_of(found.process(Matches())).description)

    plain = Pattern.begin("a").followed_by("b").where(on("b")).or_where(col("number") > 3)
    assert description(plain) == "CEP(a, b)"
    skipping = Pattern.begin("a", AfterMatchSkipStrategy.skip_to_next()).where(on("a"))
    of_rows = Pattern.begin("a").where(on("a")).where(lambda row: row.number > 3)
    slow = {
        "next('b')": Pattern.begin("a").next("b").where(on("b")),
        "followed_by_any('b')": Pattern.begin("a").followed_by_any("b").where(on("b")),
        "not_next('b')": Pattern.begin("a").not_next("b").where(on("b")).followed_by("c"),
        "the step 'b', which takes several rows": Pattern.begin("a").followed_by("b").times(2),
        "the step 'a', which may be left out": Pattern.begin("a").where(on("a")).optional().followed_by("b"),
        "a group": Pattern.begin(Pattern.begin("a")).followed_by("b"),
        "its skip strategy skip_to_next": skipping,
        "the condition of the step 'a', which is not over columns": of_rows,
        "the time limit of the step 'b'": Pattern.begin("a")
        .followed_by("b")
        .within(Time.seconds(1), WithinType.PREVIOUS_AND_CURRENT),
    }
    for reason, pattern in slow.items():
        assert description(pattern).endswith(f"), row by row because of {reason}")
    assert description(plain, 3) == "CEP(a, b), row by row because of max_partial_matches"


# ---------------------------------------------------------------------- refusals


def stream(schema: pa.Schema = SCHEMA, *, timed: bool = False) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = env.from_collection([(1, "a", 2)], Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()]))
    if timed:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbers())
        source = source.assign_timestamps_and_watermarks(strategy)
    return source.to_arrow(schema)


def test_what_columns_do_not_have_is_refused_with_the_step() -> None:
    columns = stream().key_by("k")
    unknown = Pattern.begin("a").where(on("a")).next("end").where(col("lettr") == "b")
    with pytest.raises(
        InvalidProgramError, match=r"a condition of the step 'end': there is no column 'lettr'"
    ):
        CEP.pattern(columns, unknown)
    other = Pattern.begin(Pattern.begin("in").where(on("a"))).next("end").where(col("number") == "b")
    with pytest.raises(InvalidProgramError, match=r"the step 'end': column 'number' is of type int64"):
        CEP.pattern(columns, other)
    until = Pattern.begin("many").where(on("a")).one_or_more().until(col("end") == 1)
    with pytest.raises(InvalidProgramError, match="the step 'many': there is no column 'end'"):
        CEP.pattern(columns, until)
    loop = Pattern.begin("many").where(pc.field("letter") == "a").one_or_more().until(pc.field("end") == 1)
    with pytest.raises(InvalidProgramError, match="the step 'many': there is no column 'end'"):
        CEP.pattern(columns, loop)
    with pytest.raises(ValueError, match=r"until: the Arrow expression .* Name each column"):
        Pattern.begin("many").one_or_more().until(pc.field(0) == 1)
    with pytest.raises(TypeError, match=r"where takes .* such as col\('amount'\) > 5"):
        Pattern.begin("a").where(col("number"))
    with pytest.raises(InvalidProgramError, match="no comparator orders them"):
        CEP.pattern(columns, a_then_b(), lambda one, other: 0)
    with pytest.raises(InvalidProgramError, match="a stream of columns is looked through in event time"):
        CEP.pattern(columns, a_then_b()).in_processing_time()
    twice = pa.schema([("k", pa.int64()), ("letter", pa.string()), ("letter", pa.string())])
    with pytest.raises(InvalidProgramError, match=r"two columns of the stream are named \['letter'\]"):
        CEP.pattern(stream().map_batches(lambda rows: rows, twice).key_by("k"), a_then_b())
    with pytest.raises(InvalidProgramError, match="the columns of the stream are not known"):
        CEP.pattern(stream().map_batches(lambda rows: rows).key_by("k"), a_then_b())
    loop = Pattern.begin("many").where(on("a")).one_or_more()
    with pytest.raises(MalformedPatternError, match="neither a time limit nor an end"):
        CEP.pattern(columns, loop).process(Both())
    with pytest.raises(InvalidProgramError, match="nothing before it gives records a timestamp"):
        CEP.pattern(columns, a_then_b()).process(Both())


def test_partial_matches_do_not_go_to_the_late_batches() -> None:
    late = CEP.pattern(stream().key_by("k"), a_then_b()).side_output_late_data(LATE)
    with pytest.raises(InvalidProgramError, match="takes batches of late rows"):
        late.select(shown, LATE, lambda match, time: time)

    class ToLate(PatternProcessFunction):
        def process_match(self, match: Any, ctx: Any) -> Iterable[Any]:
            yield LATE, 1

    with harness(a_then_b(), ToLate(), behind=lambda made: made.side_output_late_data(LATE)) as job:
        push(job, [(1, "a", 0), (1, "b", 1)], [1, 2])
        with pytest.raises(FragmentFailedError, match="takes batches of late rows"):
            job.watermark(2)


def test_conditions_over_columns_are_refused_for_rows() -> None:
    for rows in (stream(), stream().to_rows().key_by(lambda row: row[0])):
        with pytest.raises(InvalidProgramError, match="the step 'a' has a condition over columns"):
            CEP.pattern(rows, a_then_b())
    with pytest.raises(TypeError, match="match: the step 'a' has a condition over columns"):
        match(a_then_b(), [], timestamp=lambda row: 0)


def test_batches_that_no_pattern_takes_fail_with_operator_and_record() -> None:
    with (
        harness(a_then_b()) as job,
        pytest.raises(FragmentFailedError, match="'CEP': a row has no timestamp"),
    ):
        push(job, [(1, "a", 0), (1, "b", 1)], [1, None])
    with harness(a_then_b()) as job, pytest.raises(FragmentFailedError, match="updates or deletions"):
        job.send(ArrowBatch(batch([(1, "a", 0)]), pa.array([1]), bytes([3])))
    other = pa.record_batch([[1], ["a"]], names=["k", "letter"])
    with harness(a_then_b()) as job, pytest.raises(FragmentFailedError, match="its stream says k: int64"):
        job.send(ArrowBatch(other, pa.array([1])))


def test_an_arrow_expression_that_fails_names_operator_and_row() -> None:
    inverse = pc.divide(pc.scalar(6), pc.field("number"))
    with harness(Pattern.begin("a").where(inverse > 1).within(Time.seconds(1))) as job:
        push(job, [(7, "a", 1)], [1])
        with pytest.raises(FragmentFailedError, match=r"row 1 of a batch, with number = 0: .*[\s\S]*'CEP'"):
            push(job, [(7, "b", 2), (7, "a", 0)], [2, 3])


def test_an_error_of_a_condition_names_operator_row_and_key() -> None:
    pattern = Pattern.begin("a").where(on("a")).where(lambda row: row.number / 0 > 1).within(Time.seconds(1))
    with harness(pattern) as job:
        push(job, [(7, "b", 0), (7, "a", 1)], [1, 2])
        with pytest.raises(FragmentFailedError, match=r"ZeroDivisionError[\s\S]*letter='a', number=1.*key 7"):
            job.watermark(2)


@pytest.mark.usefixtures("by_states")
def test_rows_are_held_in_slices_and_stay_held_behind_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_pattern_operator, "_MOST_AT_ONCE", 10)
    with harness(a_then_b(1000), Matches()) as running:
        found = operator(running)
        held, pending = found._held, found._pending
        assert held is not None
        rows = [(key, "a", key) for key in range(25)]
        list(found.process_batch(ArrowBatch(batch(rows), pa.array(range(25), pa.int64()))))
        found.on_watermark(100)
        # A deadline that has passed: a piece of work is ten rows.
        for left in (15, 5):
            assert list(found.fire_event_timers(-inf)) == []
            assert found.event_timers_due
            assert held.row_count == 25 - left
        found.snapshot_state(1)
        assert held.row_count == 20
        entries = [key for keys, _ in pending.freeze_entries() for key in keys]
        assert (pending.entry_count, sorted(entries)) == (25, list(range(25)))
        list(found.fire_event_timers(inf))
        assert held.row_count == 25
        push(running, [(key, "b", 100 + key) for key in range(25)], [200] * 25)
        running.watermark(FAR)
        assert sorted(running.output) == [((("a", (key,)), ("b", (100 + key,))), 200) for key in range(25)]
