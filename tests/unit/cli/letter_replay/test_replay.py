"""`replay-dead-letters` changes the graph of a program, and refuses wrong letters before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.free_ports import free_port
from yarrow.cep import CEP, Pattern
from yarrow.cli.letter_replay.letter_input import LetterFiles, chosen
from yarrow.cli.letter_replay.replay import EVERYTHING, LetterReplay, ReplaySettings
from yarrow.client.errors import CommandError
from yarrow.common import Time, TimestampAssigner, WatermarkStrategy
from yarrow.common.job_client import JobClient
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.datastream import (
    CoMapFunction,
    DataStream,
    OutputTag,
    ProcessJoinFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.dead_letter_table.letter_columns import batch_of_letters
from yarrow.datastream.connectors.dead_letters import (
    DEAD_LETTERS,
    LAST_OF_MATCH,
    PAIR_OF_INPUTS,
    PARTIAL_VALUE,
    RECORD_PICKLED,
    RECORD_SHOWN,
    RECORD_TYPED,
    ROW_OF_WINDOW,
    SYSTEM_OF_FILES,
    DeadLetter,
    LeftOutPair,
)
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.hybrid_source import HybridSource
from yarrow.datastream.connectors.socket.socket_text_source import SocketTextSource
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.datastream.functions import ProcessAllWindowFunction
from yarrow.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    Evictor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.graph.column_spec import RowsToArrowOperator
from yarrow.runtime.graph.executor import DetachedJobClient, LocalFile
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind, StreamKind
from yarrow.runtime.graph.pattern_spec import PatternOperator, ReplayedMatchesOperator
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.graph.stream_graph import StreamGraph, StreamNode
from yarrow.runtime.graph.translation.operator_ids import operator_ids
from yarrow.table.expressions import col

Build = Callable[[DataStream], Any]


def letter(uid: str, row: Any = 1, declared: TypeInformation | None = None, **fields: Any) -> DeadLetter:
    raw = serializer_for(declared).dump_rows([row])
    encoding = RECORD_PICKLED if declared is None else RECORD_TYPED
    text = "" if declared is None else str(declared)
    return DeadLetter("", -1, raw, "no", operator=uid, encoding=encoding, record_type=text, **fields)


def program(build: Build) -> StreamGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    build(env.from_sequence(1, 9).uid("numbers").map(lambda number: number, Types.LONG()).uid("same"))
    return env.get_stream_graph()


def parsed(numbers: DataStream) -> DataStream:
    return numbers.map(lambda number: number, Types.LONG()).uid("parse").on_error("skip", max_share=0.1)


def replayed(
    tmp_path: Path, graph: StreamGraph, *letters: DeadLetter, uids: tuple[str, ...] = (), trusts: bool = False
) -> StreamGraph:
    (tmp_path / "letters").write_text("".join(each.to_json() + "\n" for each in letters))
    config = Settings({}, "the test")
    LetterReplay.of(str(tmp_path / "letters"), config, ReplaySettings(uids, trusts)).change(graph)
    return graph


class Both(CoMapFunction):  # type: ignore[type-arg]
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: str) -> int:
        return len(value)


def node(graph: StreamGraph, name: str) -> StreamNode:
    return next(each for each in graph.nodes.values() if name in (each.uid, each.name))


def test_letters_enter_as_the_rows_of_the_operator_do_and_ids_stay(tmp_path: Path) -> None:
    def keyed(numbers: DataStream) -> None:
        parsed(numbers.key_by(lambda number: number % 3, Types.LONG()))
        numbers.map(str)

    before = program(keyed)
    graph = replayed(tmp_path, program(keyed), letter("parse", 5, Types.LONG()))
    edges = node(graph, "dead letters of parse").out_edges
    into = next(edge for edge in edges if edge.side_output is None)
    target = node(graph, "parse")
    assert into.target == target.id
    assert into.partitioner == target.in_edges[0].partitioner and into.type_spec == Types.LONG().to_spec()
    ids, known = operator_ids(graph), operator_ids(before)
    silent = {each.id for each in before.sources()}
    assert {ids[each] for each in known if each not in silent} == {
        known[each] for each in known if each not in silent
    }
    # The source reads nothing, and its state is another one's.
    assert all(ids[each] != known[each] for each in silent)
    # What is left out is counted, without a bound.
    assert target.errors.policy.value == "dead_letter" and not target.errors.is_bounded


def test_letters_of_a_second_input_go_there(tmp_path: Path) -> None:
    def build(numbers: DataStream) -> None:
        texts = numbers.map(str, Types.STRING())
        numbers.connect(texts).map(Both(), Types.LONG()).uid("both").on_error("dead_letter")

    graph = replayed(tmp_path, program(build), letter("both", "a", Types.STRING(), input=1))
    edge = node(graph, "dead letters of both, input 1").out_edges[0]
    assert edge.target == node(graph, "both").id and edge.target_input == 1


def test_letters_of_columns_are_made_columns(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("value", pa.int64())])

    def build(numbers: DataStream) -> None:
        numbers.to_arrow(schema).map_batches(lambda batch: batch, schema).uid("batches").on_error(
            "dead_letter"
        )

    found = letter("batches", Row(value=5))
    graph = replayed(tmp_path, program(build), found, trusts=True)
    converted = node(graph, "columns of dead letters of batches")
    edge = converted.out_edges[0]
    assert edge.target == node(graph, "batches").id and edge.stream_kind is StreamKind.COLUMNAR
    assert converted.in_edges[0].source == node(graph, "dead letters of batches").id


def test_rows_of_a_pattern_of_columns_are_made_columns(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("value", pa.int64())])

    def build(numbers: DataStream) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("value")
        batches = numbers.to_arrow(schema).assign_timestamps_and_watermarks(strategy)
        found = CEP.pattern(batches.key_by("value"), Pattern.begin("first").where(col("value") > 5))
        found.select(lambda match: len(match)).uid("pattern").on_error("dead_letter")

    graph = replayed(tmp_path, program(build), letter("pattern", Row(value=5), timestamp=5), trusts=True)
    converted = node(graph, "columns of dead letters of pattern")
    (edge,) = converted.out_edges
    assert isinstance(converted.spec, RowsToArrowOperator)
    assert pa.ipc.read_schema(pa.py_buffer(converted.spec.schema)) == schema
    target = node(graph, "pattern")
    assert edge.target == target.id and edge.partitioner == target.in_edges[0].partitioner


def program_of_two_sources() -> StreamGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    first, second = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()
        for path in ("first", "second")
    )
    both = HybridSource.builder(first).add_source(second).build()
    env.from_source(both, WatermarkStrategy.no_watermarks(), "both").uid("both").print()
    return env.get_stream_graph()


@pytest.mark.parametrize(
    ("places", "words"),
    [((), "do not tell which source"), ((2,), "source 2 of a HybridSource had read them")],
)
def test_letters_of_a_chain_of_sources_tell_a_source_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: tuple[int, ...], words: str
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    found = DeadLetter("second", 1, b"text", "no", operator="both", places=(1,))
    graph = replayed(tmp_path, program_of_two_sources(), found)
    assert [edge.target for edge in node(graph, "dead letters of both").out_edges if edge.side_output is None]
    with pytest.raises(CommandError, match=words):
        replayed(tmp_path, program_of_two_sources(), found._replace(places=places))


def test_letters_that_name_damaged_blocks_are_counted_and_those_of_rows_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": ["1"]}), tmp_path / "in")
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(pa.schema([("n", pa.string())])), str(tmp_path / "in")
    ).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows").to_rows().print()
    graph = env.get_stream_graph()
    block = DeadLetter(
        "f", 1, b"row group 0", "no", operator="rows", encoding=RECORD_SHOWN, system=SYSTEM_OF_FILES
    )
    fed = node(replayed(tmp_path, graph, block), "dead letters of rows")
    assert fed.output_kind is StreamKind.COLUMNAR
    with pytest.raises(CommandError, match="they come from a source, and the operator of this uid is none"):
        replayed(tmp_path, program(parsed), block._replace(operator="parse"))


def test_a_replay_is_as_small_as_its_letters_and_as_bounded_as_its_program(tmp_path: Path) -> None:
    graph = replayed(tmp_path, program(parsed), letter("parse", 5, Types.LONG()))
    sizes = {each.name: each.input_bytes for each in graph.sources()}
    assert sorted(sizes.values(), key=str) == [0, (tmp_path / "letters").stat().st_size]
    assert all(each.spec.is_bounded for each in graph.sources())
    env = StreamExecutionEnvironment.get_execution_environment()
    source = SocketTextSource("localhost", 9)
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    lines.map(len, Types.LONG()).uid("parse").on_error("skip")
    graph = replayed(tmp_path, env.get_stream_graph(), letter("parse", "a", Types.STRING()), trusts=True)
    assert [each.spec.is_bounded for each in graph.sources() if each.uid is None] == [False]


class Submits:
    """An executor that submits nothing."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        return DetachedJobClient(job_graph.job_id)


def test_a_batch_program_is_replayed_and_goes_on_from_no_savepoint(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    parsed(env.from_sequence(1, 9).map(lambda number: number, Types.LONG()))
    job = env.get_job_graph("numbers")
    assert job.job_type is JobType.BATCH
    (tmp_path / "letters").write_text(letter("parse", 5, Types.LONG()).to_json())
    letters = chosen(LetterFiles(str(tmp_path / "letters"), Settings({}, "the test")), ())
    fresh = LetterReplay(letters, None, EVERYTHING)
    fresh.executor_around(Submits()).execute(job, {}, [])
    assert fresh.is_submitted
    restored = LetterReplay(letters, frozenset(), EVERYTHING)
    with pytest.raises(CommandError, match="'numbers' runs in BATCH, which goes on from no savepoint"):
        restored.executor_around(Submits()).execute(job, {}, [])
    assert not restored.is_submitted


@pytest.mark.parametrize(
    ("letters", "uids", "words"),
    [
        (
            [
                letter("gone", 1, Types.LONG()),
                letter("gone", 2, Types.LONG()),
                letter("parse", 3, Types.LONG()),
            ],
            (),
            r"no operator for the dead letters of 'gone' \(2\)",
        ),
        ([letter("parse", 1, Types.LONG())], ("sum",), r"no dead letter of 'sum'.*of 'parse' \(1\)"),
        (
            [letter("parse", "a", Types.STRING())],
            (),
            "1 dead letters of 'parse' cannot be replayed: they hold rows of the type String.*takes Long rows",
        ),
        ([letter("parse", "a")], (), "they hold pickles.*--trust-pickles.*letters, line 1"),
        (
            [letter("parse", 1, Types.LONG())._replace(raw=b"\x01")],
            (),
            "its record cannot be read as Long.*line 1",
        ),
        ([letter("parse", 1, Types.LONG(), input=1)], (), "has no input 1"),
        ([DeadLetter("f", 1, b"1", "no", operator="parse")], (), "they come from a source"),
        (
            [DeadLetter("f", 1, b"1", "no", operator="numbers")],
            (),
            "'Source: .*' cannot read the 1 dead letters",
        ),
    ],
)
def test_letters_that_no_operator_can_take_are_refused(
    tmp_path: Path, letters: list[DeadLetter], uids: tuple[str, ...], words: str
) -> None:
    with pytest.raises(CommandError, match=words):
        replayed(tmp_path, program(parsed), *letters, uids=uids)


def test_letters_of_other_uids_are_left_out(tmp_path: Path) -> None:
    letters = [letter("gone", 1, Types.LONG()), letter("parse", 2, Types.LONG())]
    graph = replayed(tmp_path, program(parsed), *letters, uids=("parse",))
    assert node(graph, "dead letters of parse")


def test_pickles_are_taken_by_those_who_trust_them(tmp_path: Path) -> None:
    assert node(replayed(tmp_path, program(parsed), letter("parse", 5), trusts=True), "dead letters of parse")


def test_files_without_letters_are_refused(tmp_path: Path) -> None:
    config = Settings({}, "the test")
    for name, content, words in (
        ("gone", None, "no such file or folder"),
        (".hidden", "", "names that begin with"),
        ("empty", "\n", "There is no dead letter"),
        ("other", '{"a": 1}\n', "other/x, line 1: the line is no dead letter"),
    ):
        folder = tmp_path / name.strip(".")
        if content is not None:
            folder.mkdir()
            (folder / (".x" if name.startswith(".") else "x")).write_text(content)
        with pytest.raises(CommandError, match=words):
            LetterReplay.of(str(folder), config)


class Added(ProcessJoinFunction[Any, Any, int]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> list[int]:
        return [left + right]


def joined(numbers: DataStream) -> None:
    left, right = (numbers.key_by(lambda number: number % 3, Types.LONG()) for _ in range(2))
    left.immediate_join(right).process(Added(), Types.LONG()).uid("join").on_error("skip")


PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def test_pairs_go_to_their_join_by_the_key_of_their_rows(tmp_path: Path) -> None:
    found = letter("join", (4, 7), PAIR, input=PAIR_OF_INPUTS, row_times=(None, None))
    graph = replayed(tmp_path, program(joined), found)
    edges = node(graph, "dead letters of join, input 2").out_edges
    (edge,) = (each for each in edges if each.side_output is None)
    assert (edge.target, edge.target_input) == (node(graph, "join").id, PAIR_OF_INPUTS)
    selector = edge.partitioner.key_selector
    assert edge.partitioner.kind is PartitionerKind.KEY_GROUP and selector is not None
    key_of = cloudpickle.loads(selector).get_key
    assert [key_of(LeftOutPair(left, right, None, None)) for left, right in ((4, 7), (None, 8))] == [1, 2]


def test_letters_of_pairs_that_no_join_takes_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="hold pairs of rows of a join, and 'Map' is no join"):
        replayed(tmp_path, program(parsed), letter("parse", 1, Types.LONG(), input=PAIR_OF_INPUTS))
    for found, expected in (
        (letter("join", (4, 7), PAIR, input=PAIR_OF_INPUTS), "it does not tell the times of both rows"),
        (
            letter("join", 4, Types.LONG(), input=PAIR_OF_INPUTS, row_times=(1, 2)),
            "they hold rows of the type Long",
        ),
        (letter("join", (4, 7), input=PAIR_OF_INPUTS, row_times=(1, 2)), "say --trust-pickles"),
    ):
        with pytest.raises(CommandError, match=expected):
            replayed(tmp_path, program(joined), found)


def matched(numbers: DataStream) -> None:
    keyed = numbers.key_by(lambda number: number % 3, Types.LONG())
    pattern = Pattern.begin("first").where(lambda number: number > 5).within(Time.milliseconds(5))
    found = CEP.pattern(keyed, pattern).in_processing_time().select(lambda match: len(match))
    found = found.uid("pattern").on_error("skip", max_share=0.5)
    found.rebalance().map(str).uid("texts")
    found.get_side_output(OutputTag("others", Types.LONG())).map(str).uid("others")


def letter_of_match(numbers: list[int], **fields: Any) -> DeadLetter:
    made = letter("pattern", numbers[-1], Types.LONG(), input=LAST_OF_MATCH)
    encoded = serializer_for(Types.LONG()).dump_rows(numbers)
    return made._replace(steps=("first",) * len(numbers), rows=encoded, match_time=7)._replace(**fields)


def test_matches_go_to_the_function_of_their_pattern_beside_it(tmp_path: Path) -> None:
    graph = replayed(tmp_path, program(matched), letter_of_match([6, 7]), letter("pattern", 5, Types.LONG()))
    pattern, matches = node(graph, "pattern"), node(graph, "matches of dead letters of pattern, input 3")
    assert isinstance(matches.spec, ReplayedMatchesOperator) and isinstance(pattern.spec, PatternOperator)
    assert matches.spec.function == pattern.spec.function and not matches.spec.event_time
    assert matches.spec.letters_uid == "pattern" and matches.errors.policy.value == "dead_letter"
    assert matches.in_edges[0].source == node(graph, "dead letters of pattern, input 3").id
    # Its results and letters go where those of the pattern go.
    for side, name in (
        (None, "texts"),
        ("others", "others"),
        (DEAD_LETTERS, "counts of replayed dead letters"),
    ):
        own, like = (
            [edge for edge in each.out_edges if edge.side_output == side] for each in (matches, pattern)
        )
        assert [edge.target for edge in own] == [edge.target for edge in like] == [node(graph, name).id]
        assert own[0].type_spec == like[0].type_spec


def test_matches_that_no_pattern_takes_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        CommandError, match="1 dead letters of 'parse' hold matches of a pattern, and 'Map' is no"
    ):
        replayed(tmp_path, program(parsed), letter("parse", 1, Types.LONG(), input=LAST_OF_MATCH))
    for found, expected in (
        (letter("pattern", 6, Types.LONG(), input=LAST_OF_MATCH), "it does not hold all rows of its match"),
        (letter_of_match([6, 7], steps=("first",)), "it holds 2 rows and names the steps of 1"),
        (letter_of_match([6], record_type="String"), "they hold rows of the type String"),
        (letter_of_match([6], rows=b"no"), "its record cannot be read as Long"),
        (letter_of_match([6], encoding=RECORD_PICKLED, record_type=""), "say --trust-pickles"),
    ):
        with pytest.raises(CommandError, match=expected):
            replayed(tmp_path, program(matched), found)


def test_a_line_of_a_version_without_matches_is_read() -> None:
    found = letter("pattern", 6, Types.LONG(), input=LAST_OF_MATCH)
    fields = json.loads(found.to_json())
    for name in ("steps", "rows", "match_time", "timed_out"):
        del fields[name]
    assert DeadLetter.from_json(json.dumps(fields)) == found


class Whole(ProcessAllWindowFunction):  # type: ignore[type-arg]
    def process(self, context: Any, elements: Any) -> list[int]:
        return [len(elements)]


class Timed(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        number: int = value
        return number


def windows(assigner: WindowAssigner[Any, Any], evictor: Evictor[Any, Any] | None = None) -> Build:
    def build(numbers: DataStream) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Timed())
        windowed = numbers.assign_timestamps_and_watermarks(strategy).window_all(assigner)
        windowed = windowed if evictor is None else windowed.evictor(evictor)
        windowed.process(Whole(), Types.LONG()).uid("windows").on_error("dead_letter")

    return build


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(Time.milliseconds(10)),
        EventTimeSessionWindows.with_gap(Time.milliseconds(10)),
    ],
)
def test_rows_of_windows_make_them_again(tmp_path: Path, assigner: Any) -> None:
    found = letter("windows", 5, Types.LONG(), input=ROW_OF_WINDOW, timestamp=5)
    graph = replayed(tmp_path, program(windows(assigner)), found)
    edges = node(graph, "dead letters of windows, input 4").out_edges
    (edge,) = (each for each in edges if each.side_output is None)
    target = node(graph, "windows")
    assert (edge.target, edge.target_input) == (target.id, 0)
    assert edge.partitioner == target.in_edges[0].partitioner


def pre_aggregated(numbers: DataStream) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Timed())
    windowed = numbers.assign_timestamps_and_watermarks(strategy).key_by(lambda number: number % 3)
    windowed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(
        lambda first, second: first + second, pre_aggregate=True
    ).uid("windows").on_error("dead_letter")


@pytest.mark.parametrize("uid", ["windows", "windows: PreAggregation"])
def test_rows_of_pre_aggregated_windows_are_folded_again(tmp_path: Path, uid: str) -> None:
    graph = replayed(tmp_path, program(pre_aggregated), letter(uid, 5, Types.LONG(), timestamp=5))
    edges = node(graph, f"dead letters of {uid}").out_edges
    (edge,) = (each for each in edges if each.side_output is None)
    target = node(graph, "windows: PreAggregation")
    assert (edge.target, edge.type_spec) == (target.id, Types.LONG().to_spec())


def test_partial_values_are_refused_by_name(tmp_path: Path) -> None:
    found = letter("windows", 5, Types.LONG(), input=PARTIAL_VALUE, timestamp=0)
    with pytest.raises(
        CommandError, match="1 dead letters of 'windows' are values of 'TumblingEventTimeWindows' into which"
    ):
        replayed(tmp_path, program(pre_aggregated), found)


def columnar(assigner: WindowAssigner[Any, Any]) -> Build:
    schema, last = pa.schema([("n", pa.int64())]), pa.schema([("last", pa.int64())])

    def build(numbers: DataStream) -> None:
        windowed = numbers.to_arrow(schema).key_by("n").window(assigner, "n")
        windowed.aggregate_batches(lambda rows, groups: rows, last).uid("windows").on_error("dead_letter")

    return build


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(Time.milliseconds(10)),
        EventTimeSessionWindows.with_gap(Time.milliseconds(10)),
    ],
)
def test_rows_of_windows_of_columns_are_made_columns(tmp_path: Path, assigner: Any) -> None:
    found = letter("windows", Row(n=5), input=ROW_OF_WINDOW, timestamp=5)
    graph = replayed(tmp_path, program(columnar(assigner)), found, trusts=True)
    own, edge = node(graph, "windows").in_edges
    assert (edge.stream_kind, edge.target_input) == (StreamKind.COLUMNAR, 0)
    assert edge.partitioner == own.partitioner
    converted = node(graph, "columns of dead letters of windows, input 4")
    assert edge.source == converted.id
    assert converted.in_edges[0].source == node(graph, "dead letters of windows, input 4").id


@pytest.mark.parametrize(
    "build",
    [
        windows(SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))),
        windows(TumblingEventTimeWindows.of(Time.milliseconds(10)), CountEvictor.of(2)),
        columnar(SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))),
        lambda numbers: numbers.count_window_all(3).process(Whole()).uid("windows").on_error("skip"),
    ],
)
def test_rows_that_would_make_other_windows_are_refused_by_name(tmp_path: Path, build: Build) -> None:
    with pytest.raises(CommandError, match="are rows of windows whose function has failed"):
        replayed(tmp_path, program(build), letter("windows", 5, Types.LONG(), input=ROW_OF_WINDOW))


def test_letters_of_a_table_go_to_their_operator(tmp_path: Path) -> None:
    config = Settings({}, "the test")
    day = tmp_path / "day=2026-11-30"
    day.mkdir()
    letters = [letter("parse", number, Types.LONG()) for number in (1, 2)]
    pq.write_table(pa.Table.from_batches([batch_of_letters(letters)]), day / "part-0")
    for place in (tmp_path, day, day / "part-0", f"{tmp_path}/day=*"):
        graph = program(parsed)
        LetterReplay.of(f"table:{place}", config).change(graph)
        assert node(graph, "dead letters of parse")


def test_what_is_no_table_is_refused_with_what_there_is(tmp_path: Path) -> None:
    config = Settings({}, "the test")
    (tmp_path / "lines").write_text(letter("parse", 1, Types.LONG()).to_json() + "\n")
    with pytest.raises(
        CommandError, match=r"lines is no Parquet file.*lines of letters are read without table:"
    ):
        LetterReplay.of(f"table:{tmp_path}", config)
    with pytest.raises(CommandError, match="no such file or folder"):
        LetterReplay.of(f"table:{tmp_path}/gone", config)
    (tmp_path / "lines").unlink()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other")
    with pytest.raises(CommandError, match=r"other: the columns \['operator'.*Files of a DeadLetterTable"):
        LetterReplay.of(f"table:{tmp_path}", config)
    with pytest.raises(CommandError, match="A table of letters is read by table:FOLDER"):
        LetterReplay.of(str(tmp_path), config)
    with pytest.raises(
        TypeError, match=r"not str: a FileSink, a KafkaSink, a DeadLetterTable for dead letters"
    ):
        parsed_letters().sink_to("letters")  # type: ignore[arg-type]


def parsed_letters() -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_sequence(1, 9).map(str, Types.STRING()).on_error("dead_letter").dead_letters()


def test_a_topic_needs_properties_that_name_its_brokers(tmp_path: Path) -> None:
    config = Settings({}, "the test")
    file = tmp_path / "kafka.properties"
    for text, words in (
        (None, "need --kafka-properties FILE"),
        ("# nothing\n", "has no bootstrap.servers"),
        ("bootstrap.servers\n", "line 1: name=value is expected"),
    ):
        if text is not None:
            file.write_text(text)
        how = ReplaySettings(kafka_properties=None if text is None else str(file))
        with pytest.raises(CommandError, match=words):
            LetterReplay.of("topic:letters", config, how)
    with pytest.raises(CommandError, match="No such file"):
        LetterReplay.of("topic:letters", config, ReplaySettings(kafka_properties=str(tmp_path / "gone")))


@pytest.mark.slow
def test_a_topic_whose_brokers_are_absent_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(f"bootstrap.servers=localhost:{free_port()}\ndefault.api.timeout.ms=1000\n")
    with pytest.raises(
        CommandError, match=r"^The topic 'letters' cannot be read: Kafka at localhost"
    ) as raised:
        LetterReplay.of("topic:letters", Settings({}, "the test"), ReplaySettings(kafka_properties=str(file)))
    assert "\n" not in str(raised.value)
