"""Sources that read no file: number ranges, generated records, collections."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.datastream.connectors.harness import ReaderContext, SourceHarness, run, run_with_restores
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row, RowKind
from yarrow.datastream.connectors.base import NothingAvailable, Source, SourceRecords
from yarrow.datastream.connectors.collection import CollectionSource
from yarrow.datastream.connectors.datagen import (
    DataGeneratorReader,
    DataGeneratorSource,
    RateLimiterStrategy,
)
from yarrow.datastream.connectors.number_seq import NumberRange, NumberSequenceSource
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import InvalidProgramError


class Point(NamedTuple):
    x: int
    y: int


@given(st.integers(-50, 50), st.integers(0, 200), st.integers(1, 5), st.integers(1, 40))
def test_sequence_gives_each_number_once(start: int, length: int, parallelism: int, max_rows: int) -> None:
    source = NumberSequenceSource(start, start + length)
    assert sorted(run(source, parallelism, max_rows)) == list(range(start, start + length + 1))


@given(st.integers(0, 100), st.integers(1, 4), st.integers(1, 20), st.integers(1, 4))
def test_restored_sequence_goes_on(end: int, parallelism: int, max_rows: int, polls: int) -> None:
    rows = run_with_restores(NumberSequenceSource(0, end), parallelism, max_rows, polls)
    assert sorted(rows) == list(range(end + 1))


class Assignments:
    """A context of an enumerator of so many readers; what each was given, None = there is no more."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.given: list[tuple[int, str | None]] = []

    registered_readers: Mapping[int, str] = {}

    def assign_split(self, split: NumberRange, subtask: int) -> None:
        self.given.append((subtask, split.id))

    def signal_no_more_splits(self, subtask: int) -> None:
        self.given.append((subtask, None))

    def send_event_to_reader(self, subtask: int, event: Any) -> None:
        raise AssertionError(event)

    def call_later(self, seconds: float, action: Any) -> None:
        raise AssertionError(action)


@pytest.mark.parametrize("source", [NumberSequenceSource(1, 9), DataGeneratorSource(str, 9)])
def test_each_reader_has_its_share_however_late_it_asks(source: Source[Any, NumberRange]) -> None:
    context = Assignments(3)
    enumerator = source.create_enumerator(context)
    for subtask in (1, 1, 0, 1, 0, 2, 2):
        enumerator.handle_split_request(subtask, None)
    assert context.given == [(1, "1"), (1, None), (0, "0"), (1, None), (0, None), (2, "2"), (2, None)]


def test_a_share_that_comes_back_is_read_by_its_own_reader_or_by_any() -> None:
    source = NumberSequenceSource(1, 9)
    context = Assignments(3)
    enumerator = source.create_enumerator(context)
    for subtask in range(3):
        enumerator.handle_split_request(subtask, None)
    del context.given[:]
    enumerator.add_splits_back([NumberRange("1", 5, 7), NumberRange("2", 8, 10)], 1)
    # At another parallelism, and the readers 1 and 2 had ended: nobody else would ask for them.
    following = Assignments(4)
    restored = source.create_enumerator(following, enumerator.snapshot_state(1))
    for subtask in (2, 3, 3):
        restored.handle_split_request(subtask, None)
    assert following.given == [(2, "2"), (3, "1"), (3, None)]
    for subtask in (0, 1, 0):
        enumerator.handle_split_request(subtask, None)
    assert context.given == [(0, "1"), (1, "2"), (0, None)]


def test_sequence_hands_out_ranges() -> None:
    found = SourceHarness(NumberSequenceSource(1, 1_000_000_000)).readers[0].poll(500_000_000)
    assert isinstance(found, SourceRecords)
    assert found.rows == range(1, 500_000_001)


@pytest.mark.parametrize(("start", "end"), [(2, 1), (0, 2**63), (0.5, 2)])
def test_sequence_refuses_bad_bounds(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="NumberSequenceSource"):
        NumberSequenceSource(start, end)


@given(st.integers(0, 100), st.integers(1, 4), st.integers(1, 20), st.integers(1, 4))
def test_generator_makes_each_index_once(count: int, parallelism: int, max_rows: int, polls: int) -> None:
    source = DataGeneratorSource(str, count)
    assert sorted(run_with_restores(source, parallelism, max_rows, polls), key=int) == [
        str(index) for index in range(count)
    ]


def test_rate_is_kept_without_sleeping() -> None:
    clock = ManualClock()
    reader = DataGeneratorReader(ReaderContext(0, 1), lambda index: index, 100.0, clock)
    reader.add_splits([NumberRange("0", 0, 1000)])
    made = 0
    while clock.monotonic() < 5:
        found = reader.poll(1000)
        if isinstance(found, NothingAvailable):
            assert found.wait_seconds is not None
            clock.advance(found.wait_seconds)
        elif found is not None:
            made += len(found.rows)
    assert 495 <= made <= 506


def test_a_reader_held_up_makes_up_for_one_second_only() -> None:
    clock = ManualClock()
    reader = DataGeneratorReader(ReaderContext(0, 1), lambda index: index, 100.0, clock)
    reader.add_splits([NumberRange("0", 0, 10_000)])
    clock.advance(60)
    found = reader.poll(10_000)
    assert isinstance(found, SourceRecords)
    assert len(found.rows) == 100


def test_readers_share_the_rate() -> None:
    source = DataGeneratorSource(str, 100, RateLimiterStrategy.per_second(10))
    harness = SourceHarness(source, parallelism=2)
    assert [harness.poll(index) for index in (0, 1)] != [None, None]
    harness.poll(0)
    wait = harness.waits[0]
    assert wait is not None
    assert 0.15 < wait <= 0.2


def test_a_high_rate_comes_in_batches_of_a_millisecond() -> None:
    """Else a reader is polled for a row or two at a time, and spends its time on polls."""
    clock = ManualClock()
    limit = RateLimiterStrategy.per_second(100_000).records_per_second
    reader = DataGeneratorReader(ReaderContext(0, 1), str, limit, clock)
    reader.add_splits([NumberRange("0", 0, 250)])
    reader.notify_no_more_splits()
    sizes, waited = [], 0.0
    while (found := reader.poll(256)) is not None:
        if isinstance(found, SourceRecords):
            sizes.append(len(found.rows))
            clock.advance(0.00005)
        else:
            assert found.wait_seconds is not None
            waited += found.wait_seconds
            clock.advance(found.wait_seconds)
    assert len(sizes) == 3 and sum(sizes) == 250 and max(sizes) <= 110
    assert 0.002 < waited < 0.004


def test_a_slow_function_makes_few_records_a_poll() -> None:
    """Nothing else runs on the task's thread until a poll is over."""
    clock = ManualClock()
    reader = DataGeneratorReader(ReaderContext(0, 1), lambda index: clock.advance(0.01), None, clock)
    reader.add_splits([NumberRange("0", 0, 1000)])
    for _ in range(5):
        found = reader.poll(256)
        assert isinstance(found, SourceRecords) and len(found.rows) == 1
    quick = DataGeneratorReader(ReaderContext(0, 1), str, None, clock)
    quick.add_splits([NumberRange("0", 0, 1000)])
    sizes = []
    while isinstance(found := quick.poll(256), SourceRecords):
        sizes.append(len(found.rows))
    assert sizes == [256, 256, 256, 232]


def test_rate_must_be_positive() -> None:
    with pytest.raises(ValueError, match="above 0"):
        RateLimiterStrategy.per_second(0)


@given(st.lists(st.integers()), st.integers(1, 3), st.integers(1, 10), st.integers(1, 3))
def test_collection_keeps_order(elements: list[int], parallelism: int, max_rows: int, polls: int) -> None:
    assert run(CollectionSource(elements), parallelism, max_rows) == elements
    assert run_with_restores(CollectionSource(elements), 1, max_rows, polls) == elements


def test_collection_keeps_classes_by_reference() -> None:
    source = pickle.loads(pickle.dumps(CollectionSource([Point(1, 2)])))
    assert run(source) == [Point(1, 2)]
    assert type(run(source)[0]) is Point


def test_tuples_become_the_declared_rows() -> None:
    source = CollectionSource(
        [(1, "a", [2])],
        Types.ROW_NAMED(["n", "s", "f"], [Types.INT(), Types.STRING(), Types.LIST(Types.DOUBLE())]),
    )
    assert run(source) == [Row(n=1, s="a", f=[2.0])]
    assert source.produced_type() is not None


class Person:
    """An element with attributes, as user classes have them."""

    def __init__(self, first: str, last: str) -> None:
        self.last, self.first, self.age = last, first, 41


def test_names_give_the_values_of_declared_rows_in_any_order() -> None:
    declared = Types.ROW_NAMED(["first", "last"], [Types.STRING(), Types.STRING()])
    outer = Types.ROW_NAMED(["by", "n"], [declared, Types.INT()])
    ann = Row(first="Ann", last="Smith")
    moved = Row(last="Smith", first="Ann")
    moved.set_row_kind(RowKind.DELETE)
    people: list[Any] = [moved, {"last": "Smith", "first": "Ann"}, Person("Ann", "Smith"), ("Ann", "Smith")]
    found = run(CollectionSource(people, declared))
    assert found == [Row.of_kind(RowKind.DELETE, first="Ann", last="Smith"), ann, ann, ann]
    assert run(CollectionSource([Row(n=1, by={"last": "Smith", "first": "Ann"})], outer)) == [
        Row(by=ann, n=1)
    ]


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        ("x", r"'x' \(str\) has no values for these fields"),
        (Row(a=1, c="x"), "its fields are a, c, and the type has a, b"),
        ({"a": 1, "b": "x", "c": 2}, "its fields are a, b, c, and the type has a, b"),
        (Person("Ann", "Smith"), "has no values for these fields"),
        ((1,), "it has 1 values, and the type has 2 fields"),
        ((1, 2), r"field b: 2 \(int\) is no value of String"),
    ],
)
def test_an_element_that_is_no_declared_row_tells_what_differs(element: Any, reason: str) -> None:
    declared = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    with pytest.raises(InvalidProgramError, match=f"from_collection: element 1 .*{reason}"):
        CollectionSource([(1, None), element], declared)


def test_an_element_of_another_type_is_named() -> None:
    with pytest.raises(InvalidProgramError, match=r"element 1 \('x'\).*Integer: 'x' \(str\) is no value of"):
        CollectionSource([1, "x"], Types.INT())
    with pytest.raises(InvalidProgramError, match=r"field 1: 2 \(int\) is no value of String"):
        CollectionSource([(1, 2)], Types.TUPLE([Types.INT(), Types.STRING()]))


def test_an_element_that_does_not_pickle_is_named() -> None:
    with pytest.raises(InvalidProgramError, match="element 2"):
        CollectionSource([1, 2, lambda: 3])


def test_what_is_no_collection_and_no_number_is_named() -> None:
    with pytest.raises(TypeError, match="from_collection takes the elements, such as a list, not 3"):
        CollectionSource(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start must be an integer of 64 bits, not '1'"):
        NumberSequenceSource("1", 5)  # type: ignore[arg-type]
