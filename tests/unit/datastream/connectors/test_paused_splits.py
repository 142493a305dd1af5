"""Readers of one split after another, told to pause splits: nothing of a paused split is read, and all of it later."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.datastream.connectors.harness import ReaderContext
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.datastream.connectors.number_seq import NumberRange, NumberSequenceReader

SPLITS = [NumberRange("0", 0, 10), NumberRange("1", 100, 110), NumberRange("2", 200, 210)]


def reader() -> NumberSequenceReader:
    made = NumberSequenceReader(ReaderContext(0, 1))
    made.add_splits(SPLITS)
    made.notify_no_more_splits()
    made.start()
    return made


def rows(found: Any) -> list[int]:
    assert isinstance(found, SourceRecords)
    return list(found.rows)


def test_another_split_is_read_while_the_open_one_is_paused() -> None:
    made = reader()
    assert rows(made.poll(3)) == [0, 1, 2]
    made.pause_or_resume_splits(["0"], [])
    assert rows(made.poll(3)) == [100, 101, 102]
    assert [split.split_id for split in made.snapshot_state(1)] == ["1", "2", "0"]
    made.pause_or_resume_splits(["1", "2"], [])
    assert isinstance(made.poll(3), NothingAvailable)
    assert sorted(split.next for split in made.snapshot_state(2)) == [3, 103, 200]
    made.pause_or_resume_splits([], ["0"])
    assert rows(made.poll(3)) == [3, 4, 5]


def test_splits_that_have_ended_are_told_also_where_nothing_follows() -> None:
    made = reader()
    made.pause_or_resume_splits(["1", "2"], [])
    assert rows(made.poll(100)) == list(range(10))
    told = made.poll(100)
    assert isinstance(told, SourceRecords)
    assert told.finished_before == ("0",)
    assert not told.rows
    assert isinstance(made.poll(100), NothingAvailable)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sets(st.sampled_from("012")), st.integers(1, 7)), max_size=30))
def test_each_row_is_read_once_however_splits_are_paused(steps: list[tuple[set[str], int]]) -> None:
    made, paused, found = reader(), set[str](), []
    for wanted, most in [*steps, *[(set[str](), 7)] * 20]:
        made.pause_or_resume_splits(sorted(wanted - paused), sorted(paused - wanted))
        paused = wanted
        records = made.poll(most)
        if isinstance(records, SourceRecords):
            assert not records.rows or records.split_id not in paused
            found += list(records.rows)
    assert sorted(found) == [*range(10), *range(100, 110), *range(200, 210)]
    assert made.poll(7) is None
