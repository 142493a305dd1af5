"""The as-of search of columns finds what the rule of rows finds, in any cut into runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.columnar_join.as_of_search import AsOfSearch
from yarrow.container.operators.columnar_join.row_words import Numbers, RowWords
from yarrow.container.operators.columnar_join.sorted_runs import SortedRuns, merged
from yarrow.container.operators.join.as_of_rule import AsOfRule
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.join_spec import AsOfDirection

ORDERING = RowWords.around(0)
SCHEMA = pa.schema([("number", pa.int64())])

#: Rows (key, time) of both sides; the right ones come in several batches.
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 20)), min_size=1, max_size=12)
batches = st.lists(rows, max_size=5)


def words(of: list[tuple[int, int]]) -> Numbers:
    keys, times = np.array(of, np.int64).T
    return ORDERING.words(keys, times)


def versions(of: list[list[tuple[int, int]]]) -> SortedRuns:
    kept = SortedRuns(SCHEMA)
    number = 0
    for batch in of:
        numbers = pa.array(range(number, number + len(batch)))
        number += len(batch)
        kept.add(
            ORDERING, words(batch), pa.record_batch([numbers], schema=SCHEMA), np.zeros(len(batch), np.bool_)
        )
    return kept


def of_key(of: list[list[tuple[int, int]]], key: int) -> list[tuple[int, int]]:
    """The versions of a key with their numbers, sorted; of equal times the last one."""
    numbered = enumerate(row for batch in of for row in batch)
    return sorted({time: number for number, (its, time) in numbered if its == key}.items())


@pytest.mark.slow
@pytest.mark.parametrize("direction", AsOfDirection)
@settings(max_examples=60, deadline=None)
@given(left=rows, right=batches, tolerance=st.sampled_from([0, 3, 15, None]))
def test_versions_and_when_they_are_known_are_those_of_the_rule(
    direction: AsOfDirection,
    left: list[tuple[int, int]],
    right: list[list[tuple[int, int]]],
    tolerance: int | None,
) -> None:
    if direction is AsOfDirection.NEAREST and tolerance is None:
        tolerance = 7
    rule, runs = AsOfRule(direction, tolerance), versions(right).runs
    known = AsOfSearch(rule).look(ORDERING, runs, words(left))
    for at, (key, time) in enumerate(left):
        run, place, word = (int(each[at]) for each in known.versions)
        found = None
        if run >= 0:
            assert runs[run].words[place] == word
            found = int(ORDERING.times(np.array([word]))[0]), runs[run].rows.column(0)[place].as_py()
        assert found == rule.chosen(time, of_key(right, key))
        due = rule.due(time, of_key(right, key))
        # Without a version and a tolerance nothing but the end of the input makes the row leave.
        assert known.due[at] == due or min(known.due[at], due) > MAX_TIMESTAMP - 100


@pytest.mark.parametrize("direction", AsOfDirection)
@settings(max_examples=60, deadline=None)
@given(
    right=batches,
    least=st.lists(st.integers(-20, 20), min_size=3, max_size=3),
    tolerance=st.sampled_from([3, 15, None]),
)
def test_what_holds_are_the_versions_that_a_row_of_their_key_can_meet(
    direction: AsOfDirection, right: list[list[tuple[int, int]]], least: list[int], tolerance: int | None
) -> None:
    rule = AsOfRule(direction, tolerance)
    search, kept = AsOfSearch(rule), versions(right)
    stays: list[int] = []
    if kept.runs:
        run = merged(ORDERING, kept.runs)
        mask = search.holds(ORDERING, run.words, np.array(least))
        # What goes by time alone is a part of what goes.
        until = search.useless_until(min(least))
        assert until is None or not mask[ORDERING.times(run.words) <= until].any()
        stays = run.rows.column(0).filter(pa.array(mask)).to_pylist()
    expected = []
    for key in range(3):
        its = of_key(right, key)
        expected += [number for _, number in its[rule.useless(least[key], its) :]]
    assert sorted(stays) == sorted(expected)


def test_rows_before_1970_wait_without_end() -> None:
    search = AsOfSearch(AsOfRule(AsOfDirection.FORWARD, None))
    known = search.look(ORDERING, [], words([(0, -5), (0, 5)]))
    assert min(known.due) > MAX_TIMESTAMP - 100
