"""Plain sequences as arrays: the results of the table of states, in the same order, wherever the rows are cut."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pattern_model import Kind, Whole
from tests.unit.cep.test_pattern_matcher_against_model import letters
from tests.unit.container.operators.columnar_pattern.test_relevant_rows import over_columns
from yarrow.cep import Pattern
from yarrow.cep.partial_matches import PartialMatches
from yarrow.cep.pattern_matcher import PatternMatcher
from yarrow.cep.pattern_table import compile_pattern
from yarrow.cep.plain_sequences import why_no_plain_sequence
from yarrow.common.types import Row
from yarrow.container.operators.columnar_pattern import (
    sequence_matching,
    waiting_sequences,
)
from yarrow.container.operators.columnar_pattern.column_conditions import ColumnConditions
from yarrow.container.operators.columnar_pattern.pending_batches import (
    Numbers,
    PendingBatches,
    WaitingColumns,
)
from yarrow.container.operators.columnar_pattern.relevant_rows import RelevantRows
from yarrow.container.operators.columnar_pattern.sequence_matching import (
    SequenceMatching,
    rows_of_partial_matches,
)
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.elements import MAX_TIMESTAMP

SCHEMA = pa.schema([("key", pa.int64()), ("letter", pa.string()), ("at", pa.int64())])
FAR = 10**9
#: (key, letter, time)
Record = tuple[int, str, int]


class Result(NamedTuple):
    """What has ended: the numbers of its rows by step."""

    key: int
    match: tuple[tuple[str, int], ...]
    time: int
    timed_out: bool


class Job:
    """A pattern as arrays; watermarks let rows run."""

    def __init__(self, pattern: Pattern, *, gives_timed_out: bool = True) -> None:
        assert why_no_plain_sequence(pattern, None) == ""
        self.conditions = ColumnConditions(pattern)
        self._relevant = RelevantRows(compile_pattern(pattern), self.conditions.conditions)
        self._pattern, self._gives_timed_out = pattern, gives_timed_out
        self.matching, self.pending = self._begin()
        self.found: list[Result] = []

    def _begin(self) -> tuple[SequenceMatching, PendingBatches]:
        key, pattern = BatchKey("key"), self._pattern
        matching = SequenceMatching(
            key,
            pattern.steps,
            self.conditions.conditions,
            pattern.within_ms,
            lambda records: records.column("at").to_pylist(),
            gives_timed_out=self._gives_timed_out,
        )
        return matching, PendingBatches(SCHEMA, key, self._asked, matching)

    def _asked(self, times: Numbers, records: pa.RecordBatch) -> WaitingColumns:
        truths = self.conditions.truths(records)
        return WaitingColumns.of(times, records, truths, self._relevant.of(truths))

    def push(self, rows: Sequence[Record], first: int) -> None:
        """Sends rows with the numbers from `first` on."""
        times = np.array([time for _, _, time in rows], np.int64)
        self.pending.add(self._asked(times, record_batch(rows, first)))

    def watermark(self, time: int, *, slices: bool = False) -> None:
        """Lets rows run and time pass. `slices`: a piece at a time."""
        deadline = -inf if slices else inf
        while True:
            for piece in self.matching.run_until(self.pending, time, deadline):
                for key, (match, ended, timed_out) in piece:
                    taken = tuple((name, row) for name, rows in match.items() for row in rows)
                    self.found.append(Result(key, taken, ended, timed_out))
            first = self.pending.first_time
            if not self.matching.is_due(time) and (first is None or first > time):
                return

    def restart(self) -> None:
        """Begins anew from a snapshot."""
        entries = [
            entry
            for keys, values in self.pending.freeze_entries()
            for entry in zip(keys, values, strict=True)
        ]
        self.matching, self.pending = self._begin()
        self.pending.restore_entries(entries)


def record_batch(rows: Sequence[Record], first: int) -> pa.RecordBatch:
    keys, names, _ = zip(*rows, strict=True)
    return pa.record_batch([keys, names, range(first, first + len(rows))], schema=SCHEMA)


def by_states(pattern: Pattern, rows: Sequence[Record], conditions: ColumnConditions) -> list[Result]:
    """The results of the table of states, over all rows in order of time."""
    matcher = PatternMatcher(compile_pattern(pattern), lambda: 0)
    truths = conditions.truths(record_batch(rows, 0)).tolist()
    partial: dict[int, PartialMatches] = {}
    found: list[Result] = []
    for at in sorted(range(len(rows)), key=lambda at: rows[at][2]):
        key, _, time = rows[at]
        matches = partial.setdefault(key, PartialMatches.none())
        results = list(matcher.advance(matches, time))
        conditions.look_at(truths[at])
        found += [_result(key, each) for each in [*results, *matcher.take(matches, at, time)]]
    for key, matches in partial.items():
        found += [_result(key, each) for each in matcher.advance(matches, FAR)]
    return found


def _result(key: int, result: Any) -> Result:
    taken = tuple((name, row) for name, rows in result.match.items() for row in rows)
    return Result(key, taken, result.timestamp, result.timed_out)


rows_of = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from("aabbccd"), st.integers(0, 14)),
    min_size=1,
    max_size=30,
)
#: Watermarks; each may come in slices, and a restart behind it.
cuts_of = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.booleans()), max_size=6)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces, arrays and sweeps are small."""
    monkeypatch.setattr(sequence_matching, "_FIRST_PIECE", 3)
    monkeypatch.setattr(sequence_matching, "_LEAST_PIECE", 2)
    monkeypatch.setattr(sequence_matching, "_MOST_PIECE", 5)
    monkeypatch.setattr(sequence_matching, "LEAST_SWEEP", 0)
    monkeypatch.setattr(waiting_sequences, "_LEAST_PLACES", 1)


@pytest.mark.usefixtures("small")
@settings(max_examples=80, deadline=None)
@given(
    steps=st.lists(letters, min_size=1, max_size=4),
    within=st.none() | st.integers(1, 20),
    rows=rows_of,
    cuts=cuts_of,
    shows=st.booleans(),
    comes_early=st.booleans(),
)
def test_results_are_those_of_the_table_of_states(
    steps: list[str], within: int | None, rows: list[Record], cuts: list[Any], shows: bool, comes_early: bool
) -> None:
    kinds = tuple(Kind(f"s{at}", each) for at, each in enumerate(steps))
    pattern = Whole(kinds, within).pattern_of(over_columns)
    expected = by_states(pattern, rows, ColumnConditions(pattern))
    if not shows:
        expected = [each for each in expected if not each.timed_out]

    job = Job(pattern, gives_timed_out=shows)
    left = list(enumerate(rows))
    if comes_early:
        job.push(rows, 0)
        left.clear()
    for time, slices, restarts in [*sorted(cuts), (FAR, False, True)]:
        for number, row in left:
            if row[2] <= time:
                job.push([row], number)
        left = [entry for entry in left if entry[1][2] > time]
        job.watermark(time, slices=slices)
        if restarts:
            job.restart()
    if not any(restarts for _, _, restarts in cuts):
        # A snapshot has rows by key.
        matches = [each for each in expected if not each.timed_out]
        assert [each for each in job.found if not each.timed_out] == matches
    for key in (1, 2, 3):
        assert [each for each in job.found if each.key == key] == [
            each for each in expected if each.key == key
        ]
    if within is not None:
        job.watermark(FAR + FAR)
        assert job.matching.row_count == 0
        assert not job.matching._keys


def test_conditions_join_and_a_step_without_one_takes_each_row() -> None:
    pattern = Pattern.begin("any").followed_by("b").where(over_columns("b")).or_where(over_columns("cd"))
    pattern = pattern.where(over_columns("abc")).followed_by("last")
    job = Job(pattern, gives_timed_out=False)
    job.push([(1, letter, at) for at, letter in enumerate("xdcx")], 0)
    job.watermark(FAR)
    assert [each.match for each in job.found] == [
        (("any", 0), ("b", 2), ("last", 3)),
        (("any", 1), ("b", 2), ("last", 3)),
    ]


def test_times_near_the_end_of_event_time_never_pass() -> None:
    job = Job(Whole((Kind("a", "a"), Kind("b", "b")), 100).pattern_of(over_columns))
    job.push([(1, "a", MAX_TIMESTAMP - 50), (2, "a", MAX_TIMESTAMP - 150), (1, "b", MAX_TIMESTAMP - 1)], 0)
    job.watermark(MAX_TIMESTAMP)
    assert [(each.key, each.time, each.timed_out) for each in job.found] == [
        (2, MAX_TIMESTAMP - 50, True),
        (1, MAX_TIMESTAMP - 1, False),
    ]


def test_what_no_partial_match_needs_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_matching, "LEAST_SWEEP", 10)
    job = Job(
        Whole((Kind("a", "a"), Kind("b", "b")), 100_000).pattern_of(over_columns), gives_timed_out=False
    )
    job.push([(0, "a", 0)], 0)
    most = 0
    for time in range(1, 500):
        job.push([(time, "a", time), (time, "b", time)], 2 * time)
        job.push([(1000 + time, "a", time)], 2 * time + 1)
        job.push([(1000 + time - 3, "b", time)], 2 * time + 1)
        job.watermark(time)
        most = max(most, job.matching.row_count, len(job.matching._keys))
    assert len(job.found) == 499 + 496
    assert most <= 40
    held = [rows.chosen(there) for rows, there in job.matching.frozen() if there is not None]
    keys = [key for rows in held if rows is not None for key in rows.records["key"].to_pylist()]
    assert keys == [0, 1497, 1498, 1499]


def test_many_partial_matches_of_one_key_leave_in_their_order() -> None:
    job = Job(Whole((Kind("a", "a"), Kind("b", "b")), FAR).pattern_of(over_columns))
    for time in range(300):
        job.push([(1, "a", time)], time)
        job.watermark(time)
    job.push([(1, "b", 300)], 300)
    job.watermark(300)
    assert [each.match for each in job.found] == [(("a", at), ("b", 300)) for at in range(300)]


def test_rows_of_partial_matches_are_those_that_runs_reach() -> None:
    records = [(time, Row(key=1, letter="a", at=time)) for time in range(4)]
    # Cells by step: 0 and 1 of one match, 2 that no run reaches, 3 of a match that shares the second row.
    cells = [(0, 0, -1), (1, 1, 0), (0, 2, -1), (0, 1, -1)]
    matches = PartialMatches(records, cells, [(2, 1, 0), (1, 3, 1)], [], [0])
    other = PartialMatches([(0, Row(key=2, letter="b", at=9))], [(0, 0, -1)], [(1, 0, 0)], [], [0])
    found = rows_of_partial_matches([matches, other], SCHEMA)
    assert found is not None
    times, rows = found
    assert times.tolist() == [0, 0, 1]
    assert rows.to_pydict() == {"key": [1, 2, 1], "letter": ["a", "b", "a"], "at": [0, 9, 1]}
    assert rows_of_partial_matches([PartialMatches.none()], SCHEMA) is None
