"""Patterns of columns against all subsequences of each key: rows out of order and late, watermarks, restarts.

A restart cuts all subtasks and begins anew from the snapshot, at another parallelism and on either backend. The output
must be that of a run without restarts. The model is that of patterns of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_patterns_restored import KEYS, WHOLES, Model, Shown, steps_of
from tests.support.pattern_model import Kind, Whole
from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL, OWN
from yarrow.cep import CEP, AfterMatchSkipStrategy, Pattern
from yarrow.cep.plain_sequences import why_no_plain_sequence
from yarrow.common import Time
from yarrow.container.fragment import FragmentFailedError
from yarrow.container.operators.columnar_pattern import columnar_pattern_operator
from yarrow.container.operators.columnar_pattern.columnar_pattern_operator import (
    ColumnarPatternMatchingOperator,
)
from yarrow.datastream import DataStream
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.table.expressions import col

#: Columns that a snapshot must tell from its own, too.
SCHEMA = pa.schema([("time", pa.int64()), ("letter", pa.string()), ("number", pa.int64())])
LISTED = pa.schema([*SCHEMA, ("more", pa.list_(pa.int64()))])
#: Over columns alone, its rows are held until their key may match.
CHAIN = Whole((Kind("a", "a"), Kind("b", "b"), Kind("c", "c")), 30)


def on_letters(whole: Whole, *, mixed: bool = True) -> Pattern:
    """The pattern over rows (key, letter, number). `mixed`: one condition in two is a function of the row."""
    made = 0

    def condition(letters: str) -> Any:
        nonlocal made
        made += 1
        return col("letter").in_(*letters) if made % 2 or not mixed else lambda row: row.letter in letters

    return whole.pattern_of(condition)


def matching(pattern: Callable[[], Pattern]) -> Callable[[DataStream], DataStream]:
    def build(batches: DataStream) -> DataStream:
        return CEP.pattern(batches.key_by("time"), pattern()).process(Shown()).uid("pattern")

    return build


def operators(job: RestartedColumns) -> Iterator[ColumnarPatternMatchingOperator]:
    for operator in job.operators:
        assert isinstance(operator, ColumnarPatternMatchingOperator)
        yield operator


def late_dropped(job: RestartedColumns) -> int:
    return sum(operator.late_dropped for operator in operators(job))


def shown(match: Any) -> Any:
    """A result of `Shown` with plain tuples for rows."""
    return tuple((name, (row.time, row.letter, row.number)) for name, row in match)


@pytest.mark.slow
@pytest.mark.parametrize(
    "whole", [CHAIN, *WHOLES[1:]], ids=lambda whole: "".join(kind.name for kind in whole.kinds)
)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, mixed=st.booleans())
def test_matches_are_those_of_the_model(whole: Whole, steps: list[Any], backend: str, mixed: bool) -> None:
    model = Model(whole)
    job = RestartedColumns(matching(lambda: on_letters(whole, mixed=mixed)), SCHEMA, "time")
    job.start(1, backend)
    found: Counter[Any] = Counter()
    dropped = number = 0
    try:
        for step, what in [*steps, ("watermark", 100_000)]:
            if step == "rows":
                numbered = [(key, letter, number + at) for at, (key, letter, _) in enumerate(what)]
                number += len(what)
                for row, (_, _, time) in zip(numbered, what, strict=True):
                    model.row(row, time)
                job.push_rows(numbered, [time for _, _, time in what])
            elif step == "watermark":
                model.watermark = max(model.watermark, what)
                job.watermark(what)
            else:
                dropped += late_dropped(job)
                job.restart(*what)
            found.update((shown(match), time) for match, time in job.take())
            assert found == model.matches()
        assert dropped + late_dropped(job) == model.dropped
        for operator in operators(job):
            assert not list(operator._matches.all_keys())
            assert not (isinstance(operator._live, set) and operator._live)
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("whole", [WHOLES[0], Whole((Kind("a", "a"), Kind("b", "b", "next")), 40)])
def test_a_cut_among_keys_loses_and_doubles_none(backend: str, whole: Whole) -> None:
    job = RestartedColumns(matching(lambda: on_letters(whole)), SCHEMA, "time")
    job.start(1, backend)
    keys = list(range(300))
    for letter, time in (("a", 5), ("b", 6)):
        job.push_rows([(key, letter, time) for key in keys], [time] * len(keys))
    (operator,) = operators(job)
    operator.on_watermark(50)
    # A deadline that has passed: a few rows, or a key, leave in each slice.
    left: list[Any] = []
    while not left and operator.event_timers_due:
        left += [row for row, _ in operator.fire_event_timers(0.0)]
    assert 0 < len(left) < 300
    assert operator.event_timers_due
    job.stop(CANONICAL, goes_on=False)
    job.start(3, backend)
    job.watermark(50)
    again = [row for row, _ in job.take()]
    assert len(again) == 300 - len(left)
    assert {shown(row)[0][1][0] for row in [*left, *again]} == set(keys)
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


#: Plain sequences run by the table of states, or as sequences.
STATES, SEQUENCE = "states", "sequence"


def choose(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets operators that begin from now on take one of two ways."""
    plain: dict[str, Any] = {STATES: lambda *_: "a test", SEQUENCE: why_no_plain_sequence}
    monkeypatch.setattr(columnar_pattern_operator, "why_no_plain_sequence", plain[way])


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("ways", [[STATES, SEQUENCE], [SEQUENCE, STATES]], ids="-".join)
@pytest.mark.parametrize("held", [True, False], ids=["held", "matched"])
def test_a_snapshot_of_either_way_is_restored_by_the_other(
    ways: list[str], backend: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some rows begin a match and belong to another, too.
    whole = Whole((Kind("a", "ab"), Kind("b", "b"), Kind("c", "c")), 30)
    model = Model(whole)
    if not held:
        # Partial matches go to the table of states at once.
        monkeypatch.setattr(columnar_pattern_operator, "can_be_held", lambda table: False)
    choose(ways[0], monkeypatch)
    job = RestartedColumns(matching(lambda: on_letters(whole, mixed=False)), SCHEMA, "time")
    job.start(2, backend)
    found: Counter[Any] = Counter()

    def run(letters: str, start: int, watermark: int) -> None:
        rows = [(key, letter, start + at) for key in KEYS for at, letter in enumerate(letters)]
        for row in rows:
            model.row(row, row[2])
        job.push_rows(rows, [time for _, _, time in rows])
        model.watermark = watermark
        job.watermark(watermark)
        found.update((shown(match), time) for match, time in job.take())
        assert found == model.matches()

    run("xacbabacbba", 0, 8)
    for way, parallelism, start, watermark in (
        (ways[1], 3, 20, 25),
        (ways[0], 1, 31, 32),
        (ways[1], 2, 38, 39),
    ):
        choose(way, monkeypatch)
        job.restart(parallelism, backend, CANONICAL)
        assert all((operator._sequence is not None) is (way == SEQUENCE) for operator in operators(job))
        run("bca"[start % 3 :], start, watermark)
    run("c", 60, 100)
    assert len(found) == 18
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("way", [STATES, SEQUENCE])
def test_rows_of_keys_that_cannot_match_yet_are_state(
    backend: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(way, monkeypatch)
    job = RestartedColumns(matching(lambda: on_letters(CHAIN, mixed=False)), SCHEMA, "time")
    job.start(2, backend)
    job.push_rows([(key, letter, at) for key in range(9) for at, letter in enumerate("ab")], [5, 6] * 9)
    job.watermark(6)
    held = [operator._held or operator._sequence for operator in operators(job)]
    assert sum(rows.row_count for rows in held if rows is not None) == 18
    for parallelism, time in ((3, 20), (1, 21), (2, 22)):
        job.restart(parallelism, backend, OWN)
        job.watermark(time)
        assert not job.take()
    # The time of key 8 has passed: a row exactly the limit later does not match.
    job.push_rows([(key, "c", 2) for key in range(9)], [34] * 8 + [35])
    job.watermark(35)
    assert sorted(shown(match)[0][1][0] for match, _ in job.take()) == [*range(8)]
    job.push_rows([(1, "a", 3)], [40])
    job.watermark(100)
    state = job.stop(CANONICAL)
    assert all(not subtask.keyed for subtask in state.subtasks.values())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_restore_keeps_the_timers_of_a_pattern_that_runs_key_by_key(backend: str) -> None:
    def pattern() -> Pattern:
        strategy = AfterMatchSkipStrategy.skip_past_last_event()
        steps = Pattern.begin("a", strategy).where(col("letter") == "a")
        steps = steps.followed_by("b").where(lambda row: row.letter == "b")
        return steps.within(Time.milliseconds(1000))

    job = RestartedColumns(matching(pattern), SCHEMA, "time")
    job.start(1, backend)
    job.push_rows([(1, "a", 0)], [7])
    job.watermark(10)
    job.restart(1, backend, CANONICAL)
    (operator,) = operators(job)
    assert operator._timers.event_timers.next_timestamp == 1007
    job.push_rows([(1, "b", 1)], [20])
    job.watermark(1006)
    assert [time for _, time in job.take()] == [20]
    assert operator.fired_timers == 0
    job.stop(CANONICAL)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_complete_matches_of_a_former_skip_strategy_leave_the_timers_as_they_were(backend: str) -> None:
    """They may wait in a savepoint. Such a pattern runs key by key, though its rows could run in order of time."""
    strategy = AfterMatchSkipStrategy.skip_past_last_event()

    def pattern() -> Pattern:
        steps = Pattern.begin("a", strategy).where(col("letter") == "a").followed_by("b")
        steps = steps.where(lambda row: row.letter == "b")
        return steps.within(Time.milliseconds(1000))

    job = RestartedColumns(matching(pattern), SCHEMA, "time")
    job.start(1, backend)
    job.push_rows([(1, "a", 0)], [7])
    job.watermark(10)
    (operator,) = operators(job)
    place, found = operator._matches.at(1)
    assert found is not None and not found.complete
    found.complete.append((found.runs[0][1], 0))
    operator._matches.keep(place, found)
    strategy = AfterMatchSkipStrategy.no_skip()
    job.restart(1, backend, CANONICAL)
    (operator,) = operators(job)
    assert operator._ordered is None
    assert operator._timers.event_timers.next_timestamp == 1007
    place, found = operator._matches.at(1)
    assert found is not None
    found.complete.clear()
    operator._matches.keep(place, found)
    job.restart(1, backend, CANONICAL)
    (operator,) = operators(job)
    assert operator._ordered is not None
    job.stop(CANONICAL)


def test_a_late_row_is_as_late_after_a_restore_as_before() -> None:
    job = RestartedColumns(matching(lambda: on_letters(WHOLES[0])), SCHEMA, "time")
    job.start(2, "hashmap")
    job.push_rows([(1, "a", 0)], [15])
    job.watermark(20)
    job.stop(CANONICAL)
    job.start(3, "hashmap")
    job.push_rows([(1, "b", 1), (1, "b", 2)], [20, 21])
    assert late_dropped(job) == 1
    job.watermark(21)
    assert [time for _, time in job.take()] == [21]
    job.stop(CANONICAL)


@pytest.mark.slow
@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
def test_conditions_may_change_over_a_savepoint_but_no_steps_and_no_columns(
    options: CheckpointOptions,
) -> None:
    patterns, schemas = [on_letters(WHOLES[0])], [SCHEMA]

    def build(batches: DataStream) -> DataStream:
        batches = batches if schemas[0] is SCHEMA else batches.map_batches(lambda rows: rows, schemas[0])
        return matching(lambda: patterns[0])(batches)

    job = RestartedColumns(build, SCHEMA, "time")
    job.start(1, "hashmap")
    job.push_rows([(1, "a", 0), (1, "c", 1), (1, "b", 2)], [10, 60, 61])
    job.watermark(10)
    job.stop(options)
    # Rows that wait are asked anew.
    patterns[0] = Whole((Kind("a", "a"), Kind("b", "c")), 90).pattern_of(
        lambda letters: col("letter").in_(*letters)
    )
    job.start(2, "hashmap")
    job.watermark(99)
    assert [time for _, time in job.take()] == [60]
    job.stop(options)
    schemas[0] = LISTED
    with pytest.raises(FragmentFailedError, match="the restored rows have the columns time: int64, letter"):
        job.start(1, "hashmap")
    schemas[0], patterns[0] = SCHEMA, on_letters(WHOLES[1])
    with pytest.raises(FragmentFailedError, match=r"belong to another pattern, with the steps a\|b"):
        job.start(1, "hashmap")
