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
    for key, matches in partial.items():
        # A skip strategy lets matches wait for partial ones until these time out.
        found.extend((key, each) for each in matcher.advance(matches, 1000))
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
    assert held.row_count == 0


class Sifting:
    """Held rows for "a" and then "b"."""

    def __init__(self, within: int) -> None:
        pattern = Whole((Kind("a", "a"), Kind("b", "b")), within).pattern_of(over_columns)
        self._conditions = ColumnConditions(pattern)
        self._relevant = RelevantRows(compile_pattern(pattern), self._conditions.conditions)
        states = self._relevant.possible_states()
        assert states is not None
        self.held = HeldRows(BatchKey("key"), within, states)

    def sifted(self, keys: list[int], letter: str, time: int) -> WaitingColumns | None:
        """The rows that leave when each of the keys has a row."""
        records = pa.record_batch([keys, [letter] * len(keys), [time] * len(keys)], schema=SCHEMA)
        truths = self._conditions.truths(records)
        times = np.full(len(keys), time)
        return self.held.sift(
            WaitingColumns.of(times, records, truths, self._relevant.of(truths)), frozenset()
        )


def test_rows_that_were_taken_leave_their_batches() -> None:
    sifting = Sifting(10**9)
    held, keys = sifting.held, list(range(100))
    assert sifting.sifted([1000], "a", 0) is None
    for time in range(0, 40, 2):
        assert sifting.sifted(keys, "a", time) is None
        leaving = sifting.sifted(keys, "b", time + 1)
        assert leaving is not None
        assert len(leaving.times) == 200
        assert held.row_count == 1
        assert sum(len(batch.keys) for batch in held._batches) <= 2
    assert sifting.sifted([1000], "b", 50) is not None
    assert not held._batches


def test_a_snapshot_has_held_rows_as_the_cut_found_them_and_takes_none() -> None:
    sifting = Sifting(100)
    assert sifting.sifted([1, 2, 3], "a", 0) is None
    frozen = sifting.held.frozen()
    assert sifting.sifted([2], "b", 1) is not None
    assert sifting.held.row_count == 2
    ((rows, there),) = frozen
    assert there is not None
    found = rows.chosen(there)
    assert found is not None
    assert found.records["key"].to_pylist() == [1, 2, 3]


def test_many_small_batches_become_few_and_leave_nothing() -> None:
    sifting = Sifting(800)
    held = sifting.held

    def sifted(key: int, letter: str, time: int) -> WaitingColumns | None:
        return sifting.sifted([key], letter, time)

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


def test_pieces_hold_all_rows_of_a_time_in_their_order() -> None:
    times = np.array([5, 1, 5, 3, 5, 1])
    records = pa.record_batch([range(6), ["a"] * 6, times], schema=SCHEMA)
    rows = WaitingColumns.of(times, records, np.zeros((6, 1), np.bool_), np.zeros((6, 2), np.bool_))
    pieces = [piece.records["key"].to_pylist() for piece in rows.pieces_by_time(1)]
    assert pieces == [[1, 5], [3], [0, 2, 4]]
    assert [len(piece.times) for piece in rows.pieces_by_time(3)] == [3, 3]
