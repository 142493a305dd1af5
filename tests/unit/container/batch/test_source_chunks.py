"""Chunks of a source's rows: they depend on the rows alone, and so does the order of results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.batch_runner import collecting_graph, run_batch
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.batch import source_chunks
from yarrow.container.batch.source_chunks import SAMPLED, SourceChunks
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import DataStream, KeyedStream
from yarrow.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator
from yarrow.runtime.data.immutability import freeze_or_copy

#: A row of a test: (split, row, timestamp, whether it goes to the side output).
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 300), st.none() | st.integers(0, 9), st.booleans()),
    max_size=60,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def polled(rows: list[Any], cuts: random.Random) -> Iterator[SourceRecords]:
    """The rows in polls of any size, each of one split; their lists are used again."""
    reused: list[Any] = []
    at = 0
    while at < len(rows):
        part = rows[at : at + cuts.choice([1, 2, 5, 40])]
        part = [row for row in part if row[0] == part[0][0]]
        at += len(part)
        found = [row for row in part if not row[3]]
        reused[:] = [row[1] for row in found]
        stamps = [row[2] for row in found]
        timed = any(stamp is not None for stamp in stamps) or cuts.random() < 0.5
        side = [("bad", row[1]) for row in part if row[3]]
        yield SourceRecords(reused, stamps if timed else None, part[0][0], side or None, len(side))
        reused.clear()


def cut(rows: list[Any], seed: int) -> tuple[list[Any], list[Any], int]:
    """The chunks of rows, those of the side output, and the number of errors."""
    chunks = SourceChunks(7, None)
    found = []
    for records in polled(rows, random.Random(seed)):
        found += [(list(each.rows), each) for each in chunks.put(records)]
    found += [(list(each.rows), each) for each in chunks.end()]
    main = [(each.split_id, values, each.timestamps) for values, each in found if values]
    side = [(each.split_id, each.side) for _, each in found if each.side]
    return main, side, sum(each.num_errors for _, each in found)


@given(ROWS, st.integers(0, 1000))
# A whole chunk without a timestamp, before a row that has one.
@example([*[("a", 0, None, False)] * 10, ("a", 0, 0, False)], 4)
def test_chunks_depend_on_rows_alone(rows: list[Any], seed: int) -> None:
    main, side, errors = cut(rows, seed)
    assert (main, side, errors) == cut(rows, seed + 1)
    kept = [row for row in rows if not row[3]]
    assert [(split, value) for split, values, _ in main for value in values] == [row[:2] for row in kept]
    stamps = [stamp for _, values, times in main for stamp in times or [None] * len(values)]
    assert stamps == [row[2] for row in kept]
    assert [(split, value) for split, values in side for _, value in values] == [
        row[:2] for row in rows if row[3]
    ]
    assert errors == len(rows) - len(kept)
    for position, (split, values, _) in enumerate(main):
        is_last = position + 1 == len(main) or main[position + 1][0] != split
        assert len(values) == 7 or (is_last and len(values) < 7)


@pytest.mark.parametrize("poll", [1, 3, 100])
def test_chunks_of_large_rows_are_smaller(monkeypatch: pytest.MonkeyPatch, poll: int) -> None:
    monkeypatch.setattr(source_chunks, "CHUNK_BYTES", 3 * SAMPLED * 1000)
    rows = [b"x" * 1000 for _ in range(100)]
    chunks = SourceChunks(2048, None)
    lengths = [
        len(each.rows)
        for at in range(0, len(rows), poll)
        for each in chunks.put(SourceRecords(rows[at : at + poll]))
    ]
    lengths += [len(each.rows) for each in chunks.end()]
    assert lengths == [2 * SAMPLED + 1] * 3 + [1]


def test_record_batches_stay_as_they_are_and_behind_the_rows_before() -> None:
    batch = pa.record_batch([[1, 2]], names=["number"])
    chunks = SourceChunks(7, None)
    assert not list(chunks.put(SourceRecords([1], None, "a")))
    rows, columns = chunks.put(SourceRecords(batch, None, "a"))
    assert (rows.rows, columns.rows) == ([1], batch)


def test_the_end_of_another_split_ends_no_chunk() -> None:
    chunks = SourceChunks(7, None)
    assert not list(chunks.put(SourceRecords([1], None, "a")))
    assert not list(chunks.put(SourceRecords([2], None, "a", finished_before=("b",))))
    first, *none = chunks.put(SourceRecords([3], None, "c", finished_before=("a",)))
    assert (first.rows, first.finished_before, none) == ([1, 2], ("b",), [])
    (last,) = chunks.end()
    assert (last.rows, last.split_id, last.finished_before) == ([3], "c", ("a",))


# ------------------------------------------------------------------ jobs


@dataclass(frozen=True)
class Part(SourceSplit):
    @property
    def split_id(self) -> str:
        return "part"


class UnevenReader(OneByOneReader[Any, Part]):
    """Gives rows in polls of any size; fails behind the last one if it shall."""

    def __init__(self, context: SourceReaderContext, source: UnevenSource) -> None:
        super().__init__(context)
        self._source = source
        self._cuts = random.Random(source.seed)
        self._at = 0

    def open_split(self, split: Part) -> None:
        self._at = 0

    def read_split(self, max_rows: int) -> SourceRecords | None:
        start = self._at
        self._at += min(max_rows, self._cuts.choice([1, 50, 300]))
        rows = self._source.rows[start : self._at]
        if not rows and self._source.fails:
            raise OSError("the disk is gone")
        return SourceRecords(rows) if rows else None

    def current_split(self) -> Part:
        return Part()


@dataclass
class UnevenSource(Source[Any, Part]):
    rows: list[Any]
    seed: int
    fails: bool = False
    boundedness = Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[Part], checkpoint: list[Part] | None = None
    ) -> OnRequestEnumerator[Part]:
        return OnRequestEnumerator(context, [Part()] if checkpoint is None else checkpoint)

    def create_reader(self, context: SourceReaderContext) -> UnevenReader:
        return UnevenReader(context, self)


class ThirdField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


def commuting(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1], max(one[2], other[2])


AGGREGATES: dict[str, tuple[Callable[[KeyedStream], DataStream], list[float], bool]] = {
    "max with NaN": (lambda keyed: keyed.max(1), [1.0, 2.0, float("nan")], False),
    "sum of floats": (lambda keyed: keyed.sum(1), [0.1, 1e9, 1 / 3, 1e-7], False),
    "reduce with times": (lambda keyed: keyed.reduce(commuting, commutes=True), [1, 2, 3], True),
    "min_by with times": (lambda keyed: keyed.min_by(1), [1, 2, 3], True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AGGREGATES)
def test_results_come_in_one_order_however_a_source_is_polled(name: str) -> None:
    aggregate, values, timed = AGGREGATES[name]
    drawn = random.Random(5)
    rows = [(drawn.randrange(6000), drawn.choice(values), drawn.randrange(10**6)) for _ in range(20_000)]

    def results(seed: int) -> list[str]:
        env = environment(1)
        env.set_max_parallelism(4)
        stream = env.from_source(UnevenSource(rows, seed), WatermarkStrategy.no_watermarks(), "rows")
        if timed:
            strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ThirdField())
            stream = stream.assign_timestamps_and_watermarks(strategy)
        graph = collecting_graph(env, aggregate(stream.key_by(lambda row: row[0])))
        options = {"execution.batch.combine": "true", "execution.batch.sort-memory": "2mb"}
        return list(map(repr, run_batch(graph, options).rows()))

    assert results(1) == results(2)


def test_what_was_read_before_a_failing_poll_runs_first() -> None:
    env = environment(1)
    rows = [(1, 1, 1), (2, 0, 2)]
    stream = env.from_source(UnevenSource(rows, 1, fails=True), WatermarkStrategy.no_watermarks(), "rows")
    with pytest.raises(OperatorFailure) as found:
        run_batch(collecting_graph(env, stream.map(lambda row: 1 / row[1])))
    assert isinstance(found.value.__cause__, ZeroDivisionError)


def test_rows_that_wait_do_not_change_with_a_row_that_the_reader_uses_again() -> None:
    chunks = SourceChunks(7, freeze_or_copy)
    row, found = [0], list[Any]()
    for number in range(10):
        row[0] = number
        found += [list(each.rows) for each in chunks.put(SourceRecords([row], None, "a"))]
    found += [list(each.rows) for each in chunks.end()]
    assert found == [[[number] for number in range(7)], [[7], [8], [9]]]
