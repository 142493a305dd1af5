"""Rows that a source makes anew go to their only consumer as they are; whoever else may have a row makes a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import DataStream, MapFunction, OutputTag
from yarrow.datastream.connectors.base import (
    Boundedness,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator
from yarrow.datastream.formats.csv_messages import CsvRowDeserializationSchema
from yarrow.datastream.formats.json import JsonLinesFormat, JsonRowDeserializationSchema
from yarrow.testing.operator_harness import OperatorHarness


class World:
    """What source, sink and test share; they are pickled, so it belongs to the class."""

    made: ClassVar[list[Any]]
    written: ClassVar[list[Any]]
    kept: ClassVar[list[Any]]
    #: Of the rows of the first poll.
    stamps: ClassVar[list[int | None] | None]
    polls: ClassVar[int]


@pytest.fixture(autouse=True)
def world() -> None:
    World.made = [Row(1, "a"), [2], {"three": 3}]
    World.written = []
    World.kept = []
    World.stamps = None
    World.polls = 1


@dataclass
class All(SourceSplit):
    split_id = "all"


class MadeReader(SourceReader[Any, All]):
    def __init__(self) -> None:
        self.polls = 0

    def add_splits(self, splits: Sequence[All]) -> None:
        pass

    def poll(self, max_rows: int) -> SourceRecords | None:
        self.polls += 1
        if self.polls > World.polls:
            return None
        return SourceRecords(list(World.made), World.stamps if self.polls == 1 else None, split_id="all")

    def snapshot_state(self, checkpoint_id: int) -> list[All]:
        return [All()]


class Made(Source[Any, All]):
    boundedness = Boundedness.BOUNDED

    def __init__(self, *, makes_new_rows: bool = True, makes_named_rows: bool = False) -> None:
        self.makes_new_rows = makes_new_rows
        self.makes_named_rows = makes_named_rows

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return OnRequestEnumerator(context, ())

    def create_reader(self, context: Any) -> Any:
        return MadeReader()


class KeepingWriter(SinkWriter[Any]):
    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        World.written += rows


class Keeping(Sink[Any]):
    def create_writer(self, context: Any, restored: Sequence[Any] = ()) -> KeepingWriter:
        return KeepingWriter()


def run(
    program: Callable[[DataStream], Any],
    *,
    makes_new_rows: bool = True,
    makes_named_rows: bool = False,
    row_type: TypeInformation | None = None,
) -> OperatorHarness:
    def fragment(env: Any) -> Any:
        source = Made(makes_new_rows=makes_new_rows, makes_named_rows=makes_named_rows)
        return program(env.from_source(source, WatermarkStrategy.no_watermarks(), "made", row_type))

    with OperatorHarness(fragment, inputs=0) as running:
        head: Any = running.tasks[0].chain.source
        head._add_splits([All()])
        running.tasks[0].wake()
        running.run()
        return running


def to_sink(stream: DataStream) -> DataStream:
    """Ends in the sink; a harness has an output at least, here of no row."""
    stream.sink_to(Keeping())
    return stream.get_side_output(NOTHING).map(lambda row: row)


def are_same(rows: Sequence[Any]) -> list[bool]:
    """Of each row whether it is the source's own object; all equal those of the source."""
    assert list(rows) == World.made
    return [row is made for row, made in zip(rows, World.made, strict=True)]


NOTHING = OutputTag("nothing")


class KeepingMap(MapFunction[Any, Any]):
    """Gives each row on, and keeps it."""

    def map(self, value: Any) -> Any:
        World.kept.append(value)
        return value


def test_a_sink_behind_the_source_gets_the_rows_themselves() -> None:
    run(to_sink)
    assert are_same(World.written) == [True, True, True]


def test_an_exchange_behind_the_source_gets_the_rows_themselves() -> None:
    assert are_same(run(lambda stream: stream).output) == [True, True, True]
    assert are_same(run(lambda stream: stream, makes_new_rows=False).output) == [False, False, False]


PAIR = Types.ROW_NAMED(["number", "letter"], [Types.LONG(), Types.STRING()])


def test_rows_that_bear_names_are_collected_without_a_loop() -> None:
    World.made = [Row(number=1, letter="a"), Row(number=2, letter="b")]
    ended = run(lambda stream: stream, makes_named_rows=True, row_type=PAIR)
    assert "named_row" not in ended.generated_code
    assert "extend" in ended.generated_code
    assert are_same(ended.output) == [True, True]


def test_rows_that_may_lack_names_get_those_of_the_declared_type() -> None:
    World.made = [Row(1, "a"), Row(number=2, letter="b")]
    ended = run(lambda stream: stream, row_type=PAIR)
    assert ended.output == [Row(number=1, letter="a"), Row(number=2, letter="b")]


@pytest.mark.parametrize("stamps", [None, [5, None, 7]])
def test_a_chain_that_only_collects_rows_runs_no_loop(stamps: list[int | None] | None) -> None:
    World.stamps = stamps
    ended = run(lambda stream: stream)
    assert "extend" in ended.generated_code
    assert are_same(ended.output) == [True, True, True]
    assert ended.timestamps() == (stamps or [None, None, None])


def test_rows_without_timestamps_are_collected_behind_rows_with_some() -> None:
    World.stamps, World.polls = [5, None, 7], 2
    ended = run(lambda stream: stream)
    assert ended.output == World.made * 2
    assert ended.timestamps() == [5, None, 7, None, None, None]


def test_a_source_that_may_keep_rows_has_them_copied() -> None:
    run(to_sink, makes_new_rows=False)
    assert are_same(World.written) == [False, False, False]


@pytest.mark.parametrize("step", ["map", "filter"])
def test_rows_that_a_function_may_keep_are_copied_behind_it(step: str) -> None:
    steps = {"map": lambda stream: stream.map(KeepingMap()), "filter": lambda stream: stream.filter(keeps)}
    run(lambda stream: to_sink(steps[step](stream)))
    assert are_same(World.written) == [False, False, False]
    assert are_same(World.kept) == [True, True, True]


def test_rows_with_two_consumers_are_copied() -> None:
    def program(stream: DataStream) -> DataStream:
        stream.sink_to(Keeping())
        return stream.map(KeepingMap())

    run(program)
    assert are_same(World.written) == [False, False, False]


def keeps(row: Any) -> bool:
    World.kept.append(row)
    return True


class KeepingSchema(JsonRowDeserializationSchema):
    """May keep rows."""


class KeepingFormat(JsonLinesFormat):
    """May keep rows."""


def test_schemas_and_formats_say_it_for_their_own_class_alone() -> None:
    pair = Types.ROW_NAMED(["a"], [Types.STRING()])
    assert JsonRowDeserializationSchema(pair).makes_new_rows
    assert CsvRowDeserializationSchema.Builder(pair).build().makes_new_rows
    assert not KeepingSchema(pair).makes_new_rows
    assert JsonRowDeserializationSchema(pair).makes_named_rows
    assert not KeepingSchema(pair).makes_named_rows
    assert not JsonRowDeserializationSchema(Types.ROW([Types.STRING()])).makes_named_rows
    assert JsonLinesFormat(pair).makes_named_rows and not JsonLinesFormat().makes_named_rows
    for made, says in ((JsonLinesFormat(), True), (KeepingFormat(), False)):
        assert FileSource.for_record_stream_format(made, "/nowhere").build().makes_new_rows is says
