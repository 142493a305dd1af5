"""FileSink: nothing half-written is visible, commits repeat safely, a restore loses and doubles nothing."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.datastream.connectors.harness import JOB, SinkContext, run
from yarrow.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from yarrow.common.typeinfo import Types
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_files import FileSinkError
from yarrow.datastream.connectors.file_sink_policies import (
    BucketAssigner,
    BucketContext,
    FileSinkSettings,
    OutputFileConfig,
    RollingPolicy,
)
from yarrow.datastream.connectors.file_sink_writer import FileCommitter, FileSinkWriter
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    StreamFormat,
    StreamingFileSink,
)
from yarrow.datastream.formats.parquet import ParquetBulkWriters
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.fs.local import LocalFileSystem

NEVER = RollingPolicy()


class ByFirstLetter(BucketAssigner):
    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return f"letter={element[0]}"


class Sinking:
    """One writer and its committer on a folder."""

    def __init__(
        self,
        folder: Path,
        rolling: RollingPolicy = NEVER,
        buckets: BucketAssigner | None = None,
        factory: BulkWriterFactory[Any] | None = None,
        restored: Sequence[Any] = (),
        context: SinkContext | None = None,
    ) -> None:
        self.folder = folder
        self.context = context or SinkContext()
        self.settings = FileSinkSettings(
            str(folder),
            Encoder.simple_string_encoder() if factory is None else None,
            factory,
            buckets or BucketAssigner.base_path_bucket_assigner(),
            rolling,
            OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".txt").build(),
        )
        self.writer = FileSinkWriter(self.settings, self.context, restored, RandomIdFactory())

    def commit(self) -> None:
        FileCommitter().commit(self.writer.prepare_commit())

    def end(self) -> None:
        self.writer.flush(end_of_input=True)
        self.commit()
        self.writer.close()

    def visible(self) -> list[str]:
        return sorted(read_back(self.folder))

    def all_files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


def read_back(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    text = StreamFormat.text_line_format()
    return run(FileSource.for_record_stream_format(text, str(folder)).build())


def die(writer: FileSinkWriter) -> None:
    """What a killed process does to its open files."""
    for part in writer._open.values():
        part._stream.close()


def test_files_appear_whole_when_committed(tmp_path: Path) -> None:
    sink = Sinking(tmp_path)
    sink.writer.write(["a", "b"], None)
    sink.writer.flush(end_of_input=True)
    assert [path.name.startswith(".") for path in sink.all_files()] == [True]
    assert sink.visible() == []
    sink.commit()
    assert sink.visible() == ["a", "b"]
    (file,) = sink.all_files()
    assert file.name.startswith("out-")
    assert file.name.endswith("-0.txt")


def test_what_was_not_committed_is_removed_on_close(tmp_path: Path) -> None:
    sink = Sinking(tmp_path, RollingPolicy(part_size=1))
    sink.writer.write(["closed"], None)
    sink.writer.write(["open"], None)
    sink.writer.close()
    assert sink.all_files() == []


def test_a_parquet_file_that_is_given_up_ends_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    factory = ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]))
    sink = Sinking(tmp_path, factory=factory)
    sink.writer.write_batch(pa.record_batch({"n": [1, 2]}))
    sink.writer.close()
    assert sink.all_files() == []
    # Parquet's writer writes its end when Python removes it.
    del sink
    gc.collect()
    assert errors == []


class FullAtTheEnd:
    """A stream on a disk without room for what waits in its buffer."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def write(self, data: bytes) -> int:
        return len(data)

    def close(self) -> None:
        self.stream.close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create, made = LocalFileSystem.create, list[FullAtTheEnd]()

    def full(files: LocalFileSystem, path: str) -> FullAtTheEnd:
        made.append(FullAtTheEnd(create(files, path)))
        return made[-1]

    monkeypatch.setattr(LocalFileSystem, "create", full)
    sink = Sinking(tmp_path, buckets=ByFirstLetter())
    sink.writer.write(["a", "b", "c"], None)
    with pytest.raises(OSError, match="No space left"):
        sink.writer.close()
    assert [file.stream.closed for file in made] == [True, True, True]
    assert sink.all_files() == []


class NoHead(BulkWriterFactory[Any]):
    """A format that writes its head at once, to a disk without room for it."""

    def create(self, stream: Any) -> BulkWriter[Any]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_whose_head_cannot_be_written_is_closed_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, made = LocalFileSystem.create, list[BinaryIO]()

    def noted(files: LocalFileSystem, path: str) -> BinaryIO:
        made.append(create(files, path))
        return made[-1]

    monkeypatch.setattr(LocalFileSystem, "create", noted)
    sink = Sinking(tmp_path, RollingPolicy.on_checkpoint_rolling_policy(), factory=NoHead())
    with pytest.raises(OSError, match="No space left"):
        sink.writer.write(["a"], None)
    assert [file.closed for file in made] == [True] and sink.all_files() == []
    sink.writer.close()


def test_files_roll_by_size(tmp_path: Path) -> None:
    sink = Sinking(tmp_path, RollingPolicy.default_rolling_policy(part_size=4))
    for row in ("aaa", "b", "ccc"):
        sink.writer.write([row], None)
    sink.end()
    assert len(sink.all_files()) == 2


def test_files_are_closed_in_time_though_no_row_comes(tmp_path: Path) -> None:
    by_age = Sinking(tmp_path / "age", RollingPolicy(rollover_interval=1000))
    idle = Sinking(tmp_path / "idle", RollingPolicy(inactivity_interval=1000))
    for sink in (by_age, idle):
        for _ in range(2):
            sink.writer.write(["x"], None)
            sink.context.advance(0.6)
    assert (len(by_age.writer.prepare_commit()), len(idle.writer.prepare_commit())) == (1, 0)
    idle.context.advance(0.4)
    committables = idle.writer.prepare_commit()
    assert len(committables) == 1
    FileCommitter().commit(committables)
    assert idle.visible() == ["x", "x"]
    idle.context.advance(10)
    assert idle.writer.prepare_commit() == []


def test_buckets_by_record_and_by_time(tmp_path: Path) -> None:
    sink = Sinking(tmp_path / "letters", buckets=ByFirstLetter())
    sink.writer.write(["ab", "b", "aa"], None)
    sink.end()
    assert {path.parent.name for path in sink.all_files()} == {"letter=a", "letter=b"}
    assert sink.visible() == ["aa", "ab", "b"]
    hours = Sinking(
        tmp_path / "hours", buckets=BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd--HH", "UTC")
    )
    hours.writer.write(["x"], None)
    hours.end()
    assert {path.parent.name for path in hours.all_files()} == {"2023-11-14--22"}


@pytest.mark.parametrize(
    ("pattern", "bucket"),
    [
        ("'day='yyyy-MM-dd'/hour='HH", "day=2023-11-14/hour=22"),
        ("'month'MM'%d'", "month11%d"),
        ("HH 'o''clock' ''", "22 o'clock '"),
    ],
)
def test_quoted_text_of_a_bucket_pattern_stands_as_it_is(pattern: str, bucket: str) -> None:
    """As in Java's patterns: folders of Hive are named so."""
    assigner = BucketAssigner.date_time_bucket_assigner(pattern, "UTC")
    assert assigner.get_bucket_id("x", BucketContext(1_700_000_000_000, None)) == bucket


def test_bucket_outside_of_the_base_path_is_refused(tmp_path: Path) -> None:
    class Escaping(BucketAssigner):
        def get_bucket_id(self, element: Any, context: BucketContext) -> str:
            return "../elsewhere"

    sink = Sinking(tmp_path / "base", buckets=Escaping())
    with pytest.raises(FileSinkError, match="elsewhere"):
        sink.writer.write(["x"], None)


def test_commits_may_be_repeated_but_not_lost(tmp_path: Path) -> None:
    sink = Sinking(tmp_path)
    sink.writer.write(["a"], None)
    sink.writer.flush(end_of_input=True)
    committables = sink.writer.prepare_commit()
    FileCommitter().commit(committables)
    FileCommitter().commit(committables)
    assert sink.visible() == ["a"]
    sink.all_files()[0].unlink()
    with pytest.raises(FileSinkError, match="neither file exists"):
        FileCommitter().commit(committables)


def test_aborted_files_go(tmp_path: Path) -> None:
    sink = Sinking(tmp_path)
    sink.writer.write(["a"], None)
    sink.writer.flush(end_of_input=True)
    FileCommitter().abort(sink.writer.prepare_commit())
    assert sink.all_files() == []


def test_a_restored_writer_keeps_what_the_checkpoint_covers(tmp_path: Path) -> None:
    first = Sinking(tmp_path)
    first.writer.write(["covered"], None)
    first.writer.flush(end_of_input=False)
    state = first.writer.snapshot_state(1)
    first.writer.write(["after"], None)
    first.writer.close()
    for attempt in range(2):
        # The second restore is from the same checkpoint: the first one failed before its own.
        again = Sinking(tmp_path, restored=state)
        again.writer.write(["after"], None)
        if attempt == 0:
            again.writer.close()
    again.end()
    assert again.visible() == ["after", "covered"]
    assert [path for path in again.all_files() if path.name.startswith(".")] == []


@pytest.mark.parametrize("prepared", [False, True])
def test_a_file_that_a_checkpoint_names_stays_though_its_end_is_given_up(
    tmp_path: Path, prepared: bool
) -> None:
    first = Sinking(tmp_path)
    first.writer.write(["covered"], None)
    first.writer.flush(end_of_input=False)
    state = first.writer.snapshot_state(1)
    first.writer.write(["after"], None)
    first.writer.flush(end_of_input=True)
    # The job fails before another checkpoint is complete.
    if prepared:
        FileCommitter().abort(first.writer.prepare_commit())
    first.writer.close()
    again = Sinking(tmp_path, restored=state)
    again.writer.write(["after"], None)
    again.end()
    assert again.visible() == ["after", "covered"]
    assert [path for path in again.all_files() if path.name.startswith(".")] == []


@pytest.mark.parametrize("columnar", [False, True])
def test_bulk_files_roll_at_checkpoints(tmp_path: Path, columnar: bool) -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.LONG()])
    factory = ParquetBulkWriters.for_row_type(row_type)
    sink = Sinking(tmp_path, RollingPolicy.on_checkpoint_rolling_policy(), factory=factory)
    for part in ([1, 2], [3]):
        if columnar:
            sink.writer.write_batch(pa.record_batch({"n": part}))
        else:
            sink.writer.write([(number,) for number in part], None)
        sink.writer.flush(end_of_input=False)
        assert sink.writer.snapshot_state(1) == []
        sink.commit()
    sink.writer.close()
    tables = [pq.read_table(path).to_pydict()["n"] for path in sink.all_files()]
    assert sorted(tables) == [[1, 2], [3]]


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    factory = ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]))
    bulk = FileSink.for_bulk_format(str(tmp_path), factory)
    assert bulk.build().accepts_columns
    with pytest.raises(ValueError, match="roll at checkpoints"):
        bulk.with_rolling_policy(RollingPolicy.default_rolling_policy())
    with pytest.raises(ValueError, match="nothing says when to compact"):
        bulk.enable_compact(FileCompactStrategy(), FileCompactor.identical_file_compactor())
    strategy = FileCompactStrategy.builder().set_size_threshold(1).build()
    with pytest.raises(
        InvalidProgramError, match=r"ParquetWriterFactory cannot be joined by their bytes; use"
    ):
        bulk.enable_compact(strategy, FileCompactor.concat_file_compactor())
    with pytest.raises(ValueError, match="'Q'"):
        BucketAssigner.date_time_bucket_assigner("yyyy-Q")
    with pytest.raises(ValueError, match=r"a quote in .* is not closed"):
        BucketAssigner.date_time_bucket_assigner("'day=yyyy")
    with pytest.raises(ValueError, match="Mars"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/Olympus")
    with pytest.raises(ValueError, match="must not begin"):
        OutputFileConfig.builder().with_part_prefix("_part")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InvalidProgramError, match="is a file"):
        FileSink.for_row_format(str(file), Encoder.simple_string_encoder()).build().validate()


class OwnEncoder(Encoder[str]):
    """An encoder of the program's."""

    def encode(self, element: str, stream: BinaryIO) -> None:
        stream.write(element.encode("ascii"))


def test_a_text_that_the_character_set_lacks_is_shown(tmp_path: Path) -> None:
    def written_by(encoder: Encoder[Any]) -> None:
        writer = FileSink.for_row_format(str(tmp_path), encoder).build().create_writer(SinkContext())
        try:
            writer.write(["fine", "caf\u00e9 \ud800"], None)
        finally:
            writer.close()

    with pytest.raises(
        YarrowError,
        match=r"^the text 'caf\\xe9 \\ud800' cannot be written: UTF-8 has no form of its character '\\ud800'",
    ):
        written_by(Encoder.simple_string_encoder())
    with pytest.raises(
        YarrowError, match=r"latin-1 has no form of its character '\\ud800'\. Replace .* 'replace'\)"
    ):
        written_by(Encoder.simple_string_encoder("latin-1"))
    # Nothing is known of its rules, so that its own lines say more.
    with pytest.raises(UnicodeEncodeError):
        written_by(OwnEncoder())


#: A call, its arguments, and what the error says.
OTHER_TYPES: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (FileSink.for_row_format, ("/out", "csv"), "for_row_format: an Encoder is expected, not 'csv'"),
    (
        FileSink.for_bulk_format,
        ("/out", ParquetBulkWriters),
        "for_bulk_format: a BulkWriterFactory is expected",
    ),
    (
        FileSource.for_record_stream_format,
        ("csv", "/in"),
        "a StreamFormat or BulkFormat is expected, not 'csv'",
    ),
    (
        FileCompactStrategy.builder().enable_compaction_on_checkpoint,
        ("2",),
        "num_checkpoints_before_compaction of a FileCompactStrategy must be a whole number, not '2'",
    ),
    (FileCompactStrategy.builder().set_num_compact_threads, (True,), "must be a whole number, not True"),
    (FileCompactStrategy.builder().set_size_threshold, (1.5,), r"must be a whole number, not 1\.5"),
    (FileCompactor.concat_file_compactor, ("\n",), "the delimiter must be bytes"),
    (
        FileCompactor.record_wise_file_compactor,
        (None,),
        r"a StreamFormat or BulkFormat of a FileSource .* not None",
    ),
]


@pytest.mark.parametrize(("call", "arguments", "message"), OTHER_TYPES)
def test_arguments_of_other_types_are_refused_by_call(
    call: Callable[..., Any], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(*arguments)


def test_compaction_needs_a_built_strategy_and_a_compactor() -> None:
    sink: Any = FileSink.for_row_format("/out", Encoder.simple_string_encoder())
    builder = FileCompactStrategy.builder().set_size_threshold(1)
    compactor = FileCompactor.concat_file_compactor()
    for strategy, other in [(builder, compactor), (compactor, builder.build()), (builder.build(), None)]:
        with pytest.raises(TypeError, match="a FileCompactStrategy and a FileCompactor are expected"):
            sink.enable_compact(strategy, other)
    assert sink.enable_compact(builder.build(), compactor).build()


def test_an_empty_batch_makes_no_file(tmp_path: Path) -> None:
    factory = ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]))
    sink = Sinking(tmp_path, RollingPolicy.on_checkpoint_rolling_policy(), factory=factory)
    sink.writer.write_batch(pa.record_batch({"n": pa.array([], pa.int64())}))
    sink.writer.write([], None)
    sink.end()
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_another_file_is_refused(tmp_path: Path) -> None:
    sink = Sinking(tmp_path)
    sink.writer.write(["a"], None)
    sink.writer.flush(end_of_input=True)
    committables = sink.writer.prepare_commit()
    Path(committables[0].target).write_text("something else\n")
    with pytest.raises(FileSinkError, match="another file, of 15 bytes instead of 2"):
        FileCommitter().commit(committables)
    assert Path(committables[0].source).read_text() == "a\n"


def test_a_rename_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    sink = Sinking(tmp_path)
    sink.writer.write(["a"], None)
    sink.writer.flush(end_of_input=True)
    committables = sink.writer.prepare_commit()
    Path(committables[0].target).hardlink_to(committables[0].source)
    FileCommitter().commit(committables)
    assert sink.visible() == ["a"]
    assert len(sink.all_files()) == 1


def test_leftovers_of_earlier_attempts_are_removed_by_the_subtask_that_owns_them(tmp_path: Path) -> None:
    # Two subtasks wrote; the checkpoint 3 covers one file of each. Both have died without closing anything.
    states = []
    for subtask in range(2):
        sink = Sinking(tmp_path, buckets=ByFirstLetter(), context=SinkContext(subtask, 2))
        sink.writer.write([f"covered {subtask}"], None)
        states += sink.writer.snapshot_state(3)
        sink.writer.write([f"lost {subtask}"], None)
        die(sink.writer)
    foreign = Sinking(tmp_path, context=SinkContext(job_id=JOB[::-1]))
    foreign.writer.write(["of another job"], None)
    staging = [path for path in sink.all_files() if path.parent.name.endswith(sink.writer._names.tag)]
    assert len(staging) == 4
    # Three go on: the states were dealt to others than those who wrote them.
    later = [
        Sinking(
            tmp_path,
            buckets=ByFirstLetter(),
            restored=restored,
            context=SinkContext(subtask, 3, attempt_number=1, restored_checkpoint_id=3),
        )
        for subtask, restored in enumerate(([], states[:1], states[1:]))
    ]
    for sink in later:
        sink.end()
    assert later[0].visible() == ["covered 0", "covered 1"]
    foreign.end()
    assert later[0].visible() == ["covered 0", "covered 1", "of another job"]
    assert [path for path in later[0].all_files() if path.name.startswith(".")] == []
    assert list(tmp_path.glob(".*")) == []


def test_a_job_from_a_savepoint_does_not_touch_the_files_of_the_job_that_goes_on(tmp_path: Path) -> None:
    first = Sinking(tmp_path)
    first.writer.write(["before"], None)
    state = first.writer.snapshot_state(5)
    second = Sinking(
        tmp_path, restored=state, context=SinkContext(job_id=JOB[::-1], restored_checkpoint_id=5)
    )
    second.end()
    first.writer.write(["after"], None)
    first.end()
    assert sorted(first.visible()) == ["after", "before", "before"]


def test_what_was_finished_since_the_checkpoint_is_not_written_again(tmp_path: Path) -> None:
    first = Sinking(tmp_path)
    first.writer.write(["covered"], None)
    state = first.writer.snapshot_state(1)
    first.end()
    again = Sinking(tmp_path, restored=state, context=SinkContext(restored_checkpoint_id=1))
    again.end()
    assert again.visible() == ["covered"]
    next(path for path in again.all_files()).unlink()
    with pytest.raises(FileSinkError, match="does not exist any more, though a checkpoint"):
        Sinking(tmp_path, restored=state)


def test_part_files_are_named_by_their_configuration() -> None:
    default = OutputFileConfig.builder().build()
    assert (default.get_part_prefix(), default.get_part_suffix()) == ("part", "")
    named = OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".csv").build()
    assert (named.get_part_prefix(), named.get_part_suffix()) == ("orders", ".csv")
    with pytest.raises(ValueError, match="must not begin with"):
        OutputFileConfig.builder().with_part_prefix(".hidden")


def test_the_older_sink_of_bulk_formats_writes_as_the_file_sink_it_stands_for(tmp_path: Path) -> None:
    factory = ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]))
    builder = StreamingFileSink.for_bulk_format(str(tmp_path), factory)
    with pytest.raises(ValueError, match="roll at checkpoints"):
        builder.with_rolling_policy(RollingPolicy.default_rolling_policy())
    older = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    writer = older.file_sink.create_writer(SinkContext())
    assert isinstance(writer, FileSinkWriter)
    writer.write([(1,), (2,)], None)
    writer.flush(end_of_input=True)
    FileCommitter().commit(writer.prepare_commit())
    writer.close()
    (part,) = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert pq.read_table(part).to_pydict() == {"n": [1, 2]}
