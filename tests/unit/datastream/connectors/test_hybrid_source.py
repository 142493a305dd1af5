"""HybridSource: each source in its turn, each record once over restores; readers that lag; sources made late."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.datastream.connectors.harness import (
    ReaderContext,
    SourceHarness,
    as_stored,
    run,
    run_with_restores,
)
from yarrow.common.typeinfo import Types
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Replay,
    Source,
    SourceReaderContext,
    SourceRecords,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.collection import CollectionSource
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import FileEnumeratorProvider, StreamFormat
from yarrow.datastream.connectors.hybrid_source import HybridSource, SourceSwitchContext
from yarrow.datastream.connectors.hybrid_source.hybrid_splits import (
    HybridEnumeratorState,
    HybridSourceSplit,
    SwitchSource,
)
from yarrow.datastream.connectors.number_seq import NumberRange, NumberSequenceReader, NumberSequenceSource
from yarrow.datastream.connectors.socket.socket_text_source import SocketTextSource
from yarrow.datastream.formats.csv import CsvReaderFormat, CsvSchema
from yarrow.datastream.formats.json import JsonLinesFormat
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.common.errors import InvalidProgramError

some = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=25,
    deadline=None,
)


def lines(path: Path, texts: Sequence[str], split_bytes: int = 20) -> FileSource[str]:
    path.write_text("".join(f"{text}\n" for text in texts))
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path))
    return builder.set_file_enumerator(
        FileEnumeratorProvider.default_splittable_file_enumerator(split_bytes)
    ).build()


def chained(*sources: Source[Any, Any]) -> HybridSource[Any]:
    builder = HybridSource.builder(sources[0])
    for source in sources[1:]:
        builder.add_source(source)
    return builder.build()


@some
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 12)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 7),
    # A reader that has no splits is through the messages of a switch after five polls.
    st.integers(6, 9),
)
def test_each_record_is_read_once_whenever_it_is_restored(
    tmp_path: Path, parts: list[tuple[bool, int]], parallelism: int, max_rows: int, polls: int
) -> None:
    sources: list[Source[Any, Any]] = []
    expected: list[Any] = []
    for index, (is_file, count) in enumerate(parts):
        numbers = range(100 * index, 100 * index + count + 1)
        if is_file:
            sources.append(lines(tmp_path / f"{index}.txt", [str(number) for number in numbers]))
            expected += map(str, numbers)
        else:
            sources.append(NumberSequenceSource(numbers[0], numbers[-1]))
            expected += numbers
    source = chained(*sources)
    assert sorted(run_with_restores(source, parallelism, max_rows, polls), key=int) == expected
    in_turn = run(source, parallelism, max_rows)
    assert [int(row) // 100 for row in in_turn] == sorted(int(row) // 100 for row in expected)


def test_a_source_begins_when_all_readers_have_finished_the_one_before() -> None:
    harness = SourceHarness(chained(NumberSequenceSource(1, 10), NumberSequenceSource(11, 20)), 2)
    for _ in range(20):
        harness.poll(0, 2)
    assert sorted(harness.rows) == [1, 2, 3, 4, 5]
    harness.run()
    assert sorted(harness.rows) == list(range(1, 21))


def test_a_restore_at_another_parallelism_goes_on_in_the_same_source(tmp_path: Path) -> None:
    source = chained(lines(tmp_path / "a.txt", list("abcdefghij"), 4), NumberSequenceSource(1, 30))
    for polls in range(1, 12):
        before = SourceHarness(source, 3)
        rows = list(before.run(1, polls))
        state = as_stored(before.snapshot())
        before.close()
        after = SourceHarness(source, 2, state)
        rows += after.run()
        after.close()
        assert sorted(map(str, rows)) == sorted([*"abcdefghij", *map(str, range(1, 31))])


def test_split_ids_tell_the_sources_apart_and_their_ends_are_told() -> None:
    harness = SourceHarness(chained(NumberSequenceSource(1, 2), NumberSequenceSource(3, 4)))
    seen: list[str | None] = []
    finished: list[str] = []
    while (found := harness.poll()) is not None:
        if isinstance(found, SourceRecords):
            finished += found.finished_before
            if len(found.rows):
                seen.append(found.split_id)
    assigned = [split.split_id for split in harness.assigned]
    assert len(set(assigned)) == 2
    assert [name for name in seen if name is not None] in ([], assigned)
    assert assigned[0] in finished


# ------------------------------------------------------------------ an enumerator that does not wait for requests


class PushingEnumerator(SplitEnumerator[NumberRange]):
    """Gives its splits to the reader that comes first, then an event, and says that no further split comes."""

    def __init__(self, context: SplitEnumeratorContext[NumberRange], splits: list[NumberRange]) -> None:
        self._context = context
        self._splits = splits

    def add_reader(self, subtask: int) -> None:
        assert subtask in self._context.registered_readers
        while self._splits:
            self._context.assign_split(self._splits.pop(0), subtask)
        self._context.send_event_to_reader(subtask, "greeting")
        self._context.signal_no_more_splits(subtask)

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        raise AssertionError("its readers request nothing")

    def add_splits_back(self, splits: Sequence[NumberRange], subtask: int) -> None:
        self._splits += splits

    def snapshot_state(self, checkpoint_id: int) -> list[NumberRange]:
        return list(self._splits)


class WaitingReader(NumberSequenceReader):
    """Requests nothing; reads once it is greeted, which must come after its start."""

    _started = False
    _greeted = False

    def start(self) -> None:
        self._started = True

    def handle_source_event(self, event: Any) -> None:
        assert self._started and event == "greeting"
        self._greeted = True

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        return super().poll(max_rows) if self._greeted else NothingAvailable()

    def _ask_if_idle(self) -> None:
        return None


class PushedNumbers(NumberSequenceSource):
    def create_enumerator(self, context: SplitEnumeratorContext[NumberRange], checkpoint: Any = None) -> Any:
        return PushingEnumerator(
            context, [NumberRange("all", self._start, self._end + 1)] if checkpoint is None else checkpoint
        )

    def create_reader(self, context: SourceReaderContext) -> WaitingReader:
        return WaitingReader(context)


def rows_of(harness: SourceHarness, polls: int = 60) -> list[Any]:
    """The rows up to the end, which must come within so many polls."""
    for _ in range(polls):
        if harness.poll(0, 3) is None:
            return harness.rows
    raise AssertionError(f"no end after {harness.rows}")


def test_what_an_enumerator_sends_at_once_waits_until_the_reader_opens_the_source() -> None:
    source = chained(PushedNumbers(1, 5), PushedNumbers(6, 8), PushedNumbers(9, 12))
    assert rows_of(SourceHarness(source)) == list(range(1, 13))


@pytest.mark.parametrize("polls", range(1, 25))
def test_an_enumerator_knows_the_readers_that_were_restored_in_its_source(polls: int) -> None:
    source = chained(PushedNumbers(1, 9), PushedNumbers(10, 12))
    before = SourceHarness(source)
    rows = list(before.run(1, polls))
    state = as_stored(before.snapshot())
    before.close()
    assert rows + rows_of(SourceHarness(source, 1, state)) == list(range(1, 13))


def test_a_reader_that_gets_a_switch_from_the_log_is_made_known_to_the_enumerator() -> None:
    source = chained(PushedNumbers(1, 2), PushedNumbers(3, 6))
    switched = HybridEnumeratorState(1, [NumberRange("all", 3, 7)], None, ())
    harness = SourceHarness(source, 1, (switched, []))
    harness.send_event_to_reader(0, SwitchSource(1, None))
    assert rows_of(harness) == [3, 4, 5, 6]


def test_a_reader_restored_in_an_earlier_source_hears_that_no_further_split_of_it_comes() -> None:
    source = chained(NumberSequenceSource(1, 2), PushedNumbers(3, 4))
    switched = HybridEnumeratorState(1, [NumberRange("all", 3, 5)], None, ())

    class Unasking(NumberSequenceReader):
        def _ask_if_idle(self) -> None:
            return None

    source.source_at(0, None).create_reader = Unasking  # type: ignore[method-assign]
    earlier = HybridSourceSplit(0, NumberRange("0", 1, 3))
    assert rows_of(SourceHarness(source, 1, (switched, [[earlier]]))) == [1, 2, 3, 4]


# ------------------------------------------------------------------ a reader that goes back


def test_a_split_of_an_earlier_source_is_read_while_a_later_source_is_open() -> None:
    source = chained(CollectionSource([1, 2, 3], None), NumberSequenceSource(4, 9))
    returned = SourceHarness(source)
    while not returned.assigned:
        returned.poll()
    earlier = returned.assigned[0]
    later = HybridSourceSplit(1, NumberRange("0", 4, 10))
    harness = SourceHarness(source, 1, (HybridEnumeratorState(1, [], None, ()), [[later]]))
    harness.poll(0, 2)
    harness.enumerator.add_splits_back([earlier], 0)
    harness.enumerator.add_reader(0)
    harness.poll(0, 1)
    assert harness.rows == [4, 5, 1]
    state = as_stored(harness.snapshot())
    assert sorted(split.source_index for split in state[1][0]) == [0, 1]
    assert rows_of(harness) == [4, 5, 1, 2, 3, 6, 7, 8, 9]
    assert rows_of(SourceHarness(source, 1, state)) == [2, 3, 6, 7, 8, 9]


def test_a_paused_split_of_a_later_source_stays_paused_when_a_source_ends() -> None:
    source = chained(CollectionSource([1], None), NumberSequenceSource(2, 3))
    later = HybridSourceSplit(1, NumberRange("0", 2, 4))
    first = SourceHarness(source)
    while not first.assigned:
        first.poll()
    returned: Any = tuple(first.assigned)
    enumerator = HybridEnumeratorState(1, [], None, returned)
    harness = SourceHarness(source, 1, (enumerator, [[later]]))
    harness.readers[0].pause_or_resume_splits([later.split_id], [])
    for _ in range(9):
        harness.poll()
    assert harness.rows == [1]
    harness.readers[0].pause_or_resume_splits([], [later.split_id])
    assert rows_of(harness) == [1, 2, 3]


class Engine(SourceHarness):
    """A harness whose readers fail one by one and go back to an earlier state, while the enumerator lives on."""

    def fail(self, subtask: int, state: list[Any], since: Sequence[Any]) -> None:
        """Replaces a reader by one with that state; the enumerator gets the splits assigned since then back."""
        self.readers[subtask].close()
        host = self.registered_readers.pop(subtask)
        self.contexts[subtask].asked = 0
        self.contexts[subtask].events.clear()
        if since:
            self.enumerator.add_splits_back(since, subtask)
        self.readers[subtask] = self.source.create_reader(self.contexts[subtask])
        self.registered_readers[subtask] = host
        if state:
            self.readers[subtask].add_splits(state)
        self.enumerator.add_reader(subtask)
        self.readers[subtask].start()
        self.answer()


@pytest.mark.parametrize("polls_before", range(0, 7, 2))
@pytest.mark.parametrize("polls_between", [0, 1, 3, 5, 8, 12])
def test_a_reader_that_goes_back_to_an_earlier_source_reads_it_to_its_end(
    tmp_path: Path, polls_before: int, polls_between: int
) -> None:
    texts = [f"{number}" for number in range(10)]
    engine = Engine(chained(lines(tmp_path / "a.txt", texts, 5), NumberSequenceSource(10, 20)), 2)
    rows: list[list[Any]] = [[], []]

    def poll(subtask: int) -> bool:
        found = engine.poll(subtask, 1)
        if isinstance(found, SourceRecords):
            rows[subtask] += list(found.rows)
        return found is not None

    for _ in range(polls_before):
        poll(0)
        poll(1)
    state = as_stored(engine.readers[0].snapshot_state(1))
    kept = list(rows[0])
    assigned = len(engine.assigned)
    mine: list[Any] = []
    give = engine.readers[0].add_splits

    def add_splits(splits: Sequence[Any]) -> None:
        mine.extend(splits)
        give(splits)

    engine.readers[0].add_splits = add_splits  # type: ignore[method-assign]
    for _ in range(polls_between):
        poll(1)
        poll(0)
    assert assigned <= len(engine.assigned)
    rows[0] = kept
    engine.fail(0, state, mine)
    running = {0, 1}
    for _ in range(200):
        running = {subtask for subtask in sorted(running) if poll(subtask)}
        if not running:
            break
    engine.close()
    assert not running
    assert sorted(map(int, rows[0] + rows[1])) == list(range(21))


def test_splits_of_an_earlier_source_wait_for_the_reader_over_a_checkpoint(tmp_path: Path) -> None:
    source = chained(lines(tmp_path / "a.txt", ["0", "1"], 2), NumberSequenceSource(2, 3))
    engine = Engine(source, 1)
    assert engine.run() == ["0", "1", 2, 3]
    first = engine.assigned[0]
    engine.close()
    engine.enumerator.add_splits_back([first], 0)
    state = as_stored(engine.enumerator.snapshot_state(1))
    assert [split.split_id for split in state.returned] == [first.split_id]
    assert SourceHarness(source, 1, (state, [])).run() == ["0"]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_reader_may_have_the_splits_of_all_sources_before_it_reads(
    tmp_path: Path, parallelism: int
) -> None:
    """As in BATCH mode, where stand-ins of the readers ask for splits until there are no more."""
    sources: list[Source[Any, Any]] = [
        lines(tmp_path / "a.txt", list("0123"), 3),
        NumberSequenceSource(4, 9),
        NumberSequenceSource(10, 12),
    ]
    source = chained(*sources)

    class StandIns:
        def __init__(self) -> None:
            self.parallelism = parallelism
            self.registered_readers = dict.fromkeys(range(parallelism), "localhost")
            self.splits: list[list[Any]] = [[] for _ in range(parallelism)]
            self.open = deque(range(parallelism))

        def assign_split(self, split: Any, subtask: int) -> None:
            self.splits[subtask].append(split)
            self.open.append(subtask)

        def signal_no_more_splits(self, subtask: int) -> None:
            self.registered_readers[subtask] = "done"

        def send_event_to_reader(self, subtask: int, event: Any) -> None:
            raise AssertionError("readers are not there yet")

        def call_later(self, seconds: float, action: Any) -> None:
            raise AssertionError("nothing is looked for")

    engine = StandIns()
    enumerator = source.create_enumerator(engine)
    enumerator.start()
    while engine.open:
        enumerator.handle_split_request(engine.open.popleft(), "localhost")
    enumerator.close()
    assert set(engine.registered_readers.values()) == {"done"}
    found: list[Any] = []
    for subtask, splits in enumerate(engine.splits):
        reader = source.create_reader(ReaderContext(subtask, parallelism))
        reader.add_splits(splits)
        reader.notify_no_more_splits()
        reader.start()
        while (records := reader.poll(2)) is not None:
            if isinstance(records, SourceRecords):
                found += records.rows
        reader.close()
    assert sorted(map(int, found)) == list(range(13))


# ------------------------------------------------------------------ sources made at the switch


class After:
    """Makes a sequence that begins behind the files that the former enumerator has seen."""

    def __call__(self, context: SourceSwitchContext) -> Source[Any, Any]:
        seen = context.get_previous_enumerator().snapshot_state(0).seen
        return NumberSequenceSource(len(seen), len(seen) + 3)


@pytest.mark.parametrize("polls", range(6, 12))
def test_a_source_is_made_where_the_former_has_ended(tmp_path: Path, polls: int) -> None:
    made = HybridSource.builder(lines(tmp_path / "a.txt", ["x", "y"])).add_source(
        After(), Boundedness.BOUNDED
    )
    source = made.add_source(NumberSequenceSource(8, 9)).build()
    found = run_with_restores(pickle.loads(pickle.dumps(source)), 1, 1, polls, allow_pickle=True)
    assert found == ["x", "y", 1, 2, 3, 4, 8, 9]
    assert source.blocking
    assert source.produced_type() is None
    assert source.estimated_bytes() is None


class Makes:
    """Makes what it was given, source or not."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __call__(self, context: SourceSwitchContext) -> Source[Any, Any]:
        made: Source[Any, Any] = self._made
        return made


def test_a_function_that_makes_something_else_is_told() -> None:
    for made in (None, SocketTextSource("localhost", 1, "\n", 0)):
        builder = HybridSource.builder(NumberSequenceSource(1, 1))
        source = builder.add_source(Makes(made), Boundedness.BOUNDED).build()
        with pytest.raises(InvalidProgramError, match="source 1 must return a source that is bounded"):
            run(source)


def test_the_default_file_system_reaches_a_source_that_a_function_makes() -> None:
    class Placed(NumberSequenceSource):
        def with_default_scheme(self, default: str) -> NumberSequenceSource:
            return NumberSequenceSource(len(default), len(default))

    made = HybridSource.builder(NumberSequenceSource(1, 1)).add_source(
        Makes(Placed(2, 2)), Boundedness.BOUNDED
    )
    assert run(made.build().with_default_scheme("hdfs://nn:8020")) == [1, 14]


def test_a_source_that_a_function_makes_is_checked_like_a_given_one(tmp_path: Path) -> None:
    for name, column in (("a", "n"), ("b", "n"), ("c", "m")):
        pq.write_table(pa.table({column: [1, 2]}), tmp_path / name)
    a, b, c = (
        FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(tmp_path / name)).build()
        for name in "abc"
    )
    numbers = NumberSequenceSource(1, 2)

    def followed(first: Source[Any, Any], made: Source[Any, Any]) -> HybridSource[Any]:
        return HybridSource.builder(first).add_source(Makes(made), Boundedness.BOUNDED).build()

    assert run(followed(a, b)) == [{"n": 1}, {"n": 2}] * 2
    for first, made in ((a, c), (a, numbers), (numbers, a)):
        with pytest.raises(InvalidProgramError, match="HybridSource: source 1 gives"):
            run(followed(first, made))
    missing = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "d")
    ).build()
    with pytest.raises(InvalidProgramError, match="does not exist"):
        run(followed(numbers, missing))


# ------------------------------------------------------------------ what is declared


def test_what_is_known_of_all_sources(tmp_path: Path) -> None:
    numbers = NumberSequenceSource(1, 2)
    both = chained(numbers, NumberSequenceSource(3, 4))
    assert both.boundedness is Boundedness.BOUNDED
    assert both.produced_type() == Types.LONG()
    assert both.replay is Replay.EXACT_POSITIONS and not both.blocking
    text = lines(tmp_path / "a.txt", ["x"])
    assert chained(numbers, text).produced_type() is None
    assert chained(text, text).estimated_bytes() == 4
    endless = chained(text, SocketTextSource("localhost", 1, "\n", 0))
    assert endless.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert endless.replay is Replay.NONE
    assert endless.history() is None
    relative = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/in").build()
    assert chained(relative, numbers).with_default_scheme("hdfs://nn").blocking


def test_columns_go_through_and_must_be_the_same(tmp_path: Path) -> None:
    for name, column in (("a", "n"), ("b", "n"), ("c", "m")):
        pq.write_table(pa.table({column: [1, 2]}), tmp_path / name)
    a, b, c = (
        FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(tmp_path / name)).build()
        for name in "abc"
    )
    both = chained(a, b)
    both.validate()
    assert both.produced_schema() == pa.schema([("n", pa.int64())])
    assert run(both) == [{"n": 1}, {"n": 2}] * 2
    for other in (c, NumberSequenceSource(1, 2)):
        with pytest.raises(InvalidProgramError, match="HybridSource: source 1 gives"):
            chained(a, other).validate()
    with pytest.raises(InvalidProgramError, match="does not exist"):
        gone = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(tmp_path / "d")).build()
        chained(a, gone).validate()


def test_what_cannot_be_chained_is_refused() -> None:
    numbers = NumberSequenceSource(1, 2)
    endless = HybridSource.builder(SocketTextSource("localhost", 1, "\n", 0))
    with pytest.raises(InvalidProgramError, match="source 0 does not end by itself"):
        endless.add_source(numbers)
    wrong: Any = "numbers"
    with pytest.raises(TypeError, match="a Source is expected, not 'numbers'"):
        HybridSource.builder(wrong)
    with pytest.raises(TypeError, match="a Source is expected"):
        HybridSource.builder(After())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give the boundedness"):
        HybridSource.builder(numbers).add_source(After())


def test_pauses_reach_the_splits_of_their_source() -> None:
    harness = SourceHarness(chained(CollectionSource([1, 2], None), NumberSequenceSource(3, 6)))
    while not harness.assigned:
        harness.poll(0, 1)
    first = harness.assigned[0].split_id
    harness.readers[0].pause_or_resume_splits([first], [])
    assert isinstance(harness.poll(), NothingAvailable)
    harness.readers[0].pause_or_resume_splits([], [first])
    assert harness.run() == [1, 2, 3, 4, 5, 6]


class OfSchema(CollectionSource):
    """Has asked for the latest schema of a subject when the program was built."""

    adds_columns = True

    def __init__(self, kept: KeptSchema, place: str = "") -> None:
        super().__init__([1], None)
        self.kept = kept
        self.place = place

    def kept_schemas(self) -> dict[str, KeptSchema]:
        return {self.place: self.kept}

    def with_kept_schemas(self, kept: Mapping[str, KeptSchema]) -> OfSchema:
        return OfSchema(kept[self.place], self.place)


def test_each_source_of_a_chain_keeps_its_own_schema() -> None:
    first, second, latest = (
        KeptSchema("orders-value", f"version {number}", str(number)) for number in (1, 2, 3)
    )
    plain = CollectionSource([1], None)
    chain = (
        HybridSource.builder(plain).add_source(OfSchema(latest)).add_source(OfSchema(latest, "key")).build()
    )
    assert chain.kept_schemas() == {"1": latest, "2/key": latest} and chain.adds_columns
    restored = chain.with_kept_schemas({"1": first, "2/key": second})
    assert restored.kept_schemas() == {"1": first, "2/key": second}
    assert restored.source_at(0, None) is plain and chain.kept_schemas() == {"1": latest, "2/key": latest}
    assert restored.with_kept_schemas({"2/key": latest}).kept_schemas() == {"1": first, "2/key": latest}
    assert HybridSource.builder(plain).add_source(plain).build().kept_schemas() == {}


def letters_of_two_sources(tmp_path: Path) -> tuple[HybridSource[Any], list[DeadLetter]]:
    """CSV behind JSON lines, and the letters of one line of each."""
    (tmp_path / "json").write_text('{"n": 1}\n{"n"\n')
    (tmp_path / "csv").write_text("2\nno\n")
    number = Types.ROW_NAMED(["n"], [Types.LONG()])
    csv = CsvReaderFormat.for_schema(CsvSchema.builder().add_number_column("n").build())
    made = [
        FileSource.for_record_stream_format(lines, str(tmp_path / name)).on_error("dead_letter").build()
        for name, lines in (("json", JsonLinesFormat(number)), ("csv", csv))
    ]
    source = chained(*made)
    harness = SourceHarness(source)
    assert [row.n for row in harness.run()] == [1, 2]
    harness.close()
    return source, [letter for _, letter in harness.side]


def test_letters_tell_their_source_which_reads_them_again(tmp_path: Path) -> None:
    source, letters = letters_of_two_sources(tmp_path)
    assert [letter.places for letter in letters] == [(0,), (1,)]
    assert [DeadLetter.from_json(letter.to_json()) for letter in letters] == letters
    read = source.letter_reader()
    assert read is not None
    mended = [letters[0]._replace(raw=b'{"n": 3}'), letters[1]._replace(raw=b"4")]
    assert [row.n for letter in mended for row in read(letter).rows] == [3, 4]
    # A letter that is refused again tells its source again.
    again = [letter for each in letters for _, letter in read(each).side or ()]
    assert [(letter.places, letter.raw) for letter in again] == [((0,), b'{"n"'), ((1,), b"no")]
    # A chain in a chain tells both places.
    outer, inner = chained(NumberSequenceSource(1, 1), source), letters[1].of_source(1)
    assert inner.places == (1, 1) and outer.letter_refusal(inner) is None
    read = outer.letter_reader()
    assert read is not None and [row.n for row in read(inner._replace(raw=b"5")).rows] == [5]


def test_letters_that_no_source_of_the_chain_can_read_are_refused(tmp_path: Path) -> None:
    source, (letter, _) = letters_of_two_sources(tmp_path)
    assert "do not tell which source" in (source.letter_refusal(letter._replace(places=())) or "")
    assert "source 7 of a HybridSource" in (source.letter_refusal(letter._replace(places=(7,))) or "")
    numbers = HybridSource.builder(NumberSequenceSource(1, 2))
    numbers.add_source(lambda context: NumberSequenceSource(3, 4), Boundedness.BOUNDED)
    late = numbers.build()
    assert late.letter_reader() is None
    assert "NumberSequenceSource, source 0" in (late.letter_refusal(letter) or "")
    made = letter._replace(places=(1,))
    assert "made by a function at its switch" in (late.letter_refusal(made) or "")
