"""Held rows: the matcher finds the same when rows wait as columns until their key may match."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.pattern_model import Kind, Whole
from tests.unit.cep.test_pattern_matcher_against_model import strategies, wholes
from tests.unit.container.operators.columnar_pattern.test_relevant_rows import over_columns
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_matcher import PatternMatcher
from yarrow.cep.pattern_table import compile_pattern
from yarrow.container.operators.columnar_pattern.column_conditions import ColumnConditions
from yarrow.container.operators.columnar_pattern.held_rows import HeldRows, can_be_held
from yarrow.container.operators.columnar_pattern.pending_batches import WaitingColumns
from yarrow.container.operators.columnar_pattern.relevant_rows import RelevantRows
from yarrow.runtime.data.batch_key import BatchKey

SCHEMA = pa.schema([("key", pa.int64()), ("letter", pa.string()), ("at", pa.int64())])
rows_of = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.sampled_from("aabbccd"), st.integers(0, 4)), min_size=1, max_size=10
)


@settings(max_examples=25, deadline=None)
@given(whole=wholes(), skip=st.none() | strategies, rows=rows_of, cuts=st.sets(st.integers(0, 30)))
def test_rows_that_wait_change_no_match(whole: Whole, skip: Any, rows: list[Any], cuts: set[int]) -> None:
    if skip is not None and (skip.pattern_name is None or not whole.kinds[0].group):
        whole = Whole(whole.kinds, whole.within, skip)
    pattern = whole.pattern_of(over_columns)
    table, conditions = compile_pattern(pattern), ColumnConditions(pattern)
    assume(can_be_held(table))
    assert table.within_ms is not None
    relevant = RelevantRows(table, conditions.conditions)
    states = relevant.possible_states()
    assert states is not None
    matcher = PatternMatcher(table, lambda: 0, gives_timed_out=False)
    times = np.cumsum([gap for _, _, gap in rows])
    records = pa.record_batch(
        [
            pa.array(column, field.type)
            for column, field in zip(
                [[row[0] for row in rows], [row[1] for row in rows], range(len(rows))], SCHEMA, strict=True
            )
        ],
        schema=SCHEMA,
    )
    truths = conditions.truths(records)
    whole_batch = WaitingColumns.of(times, records, truths, relevant.of(truths))

    found: list[Any] = []
    partial: dict[Any, PartialMatches] = {}

    def run(batch: WaitingColumns) -> None:
        """Runs rows through the matcher, key by key."""
        order = np.lexsort((batch.times, batch.records["key"].to_numpy()))
        for place in order.tolist():
            key, letter, at = (column[place].as_py() for column in batch.records.columns)
            time = int(batch.times[place])
            matches = partial.setdefault(key, PartialMatches.none())
            found.extend((key, each) for each in matcher.advance(matches, time))
            conditions.look_at(batch.truths[place].tolist())
            found.extend((key, each) for each in matcher.take(matches, (letter, at), time))

    run(whole_batch)
    expected = sorted(map(repr, found))
    found.clear()
    partial.clear()

    held = HeldRows(BatchKey("key"), table.within_ms, states)
    before = -1
    for until in [*sorted(cuts), 1000]:
        leaving = whole_batch.chosen((times > before) & (times <= until))
        live = {key for key, matches in partial.items() if not matches.is_empty}
        left = None if leaving is None else held.sift(leaving, live)
        if left is not None:
            run(left)
        for key, matches in partial.items():
            found.extend((key, each) for each in matcher.advance(matches, until))
        held.drop_until(until)
        before = until
    assert sorted(map(repr, found)) == expected
    held.drop_until(10_000)
    assert held.first_end is None
    assert held.take_all() is None


def test_many_small_batches_become_few_and_leave_nothing() -> None:
    pattern = Whole((Kind("a", "a"), Kind("b", "b")), 800).pattern_of(over_columns)
    table, conditions = compile_pattern(pattern), ColumnConditions(pattern)
    relevant = RelevantRows(table, conditions.conditions)
    states = relevant.possible_states()
    assert states is not None
    held = HeldRows(BatchKey("key"), 800, states)

    def sifted(key: int, letter: str, time: int) -> WaitingColumns | None:
        records = pa.record_batch([[key], [letter], [time]], schema=SCHEMA)
        truths = conditions.truths(records)
        return held.sift(
            WaitingColumns.of(np.array([time]), records, truths, relevant.of(truths)), live=frozenset()
        )

    for time in range(1000):
        assert sifted(time, "a", time) is None
        held.drop_until(time)
    assert len(held._batches) < 40
    assert len(held._places) <= 900
    leaving = sifted(950, "b", 1000)
    assert leaving is not None
    assert sorted(leaving.records["at"].to_pylist()) == [950, 1000]
    held.drop_until(1799)
    assert not held._places
    assert not held._states
    assert held.first_end is None
