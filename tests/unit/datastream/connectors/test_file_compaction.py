"""Compaction of a FileSink: small files are merged before they are visible, and wait over checkpoints and restores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.unit.datastream.connectors.harness import SinkContext, as_stored
from yarrow.common.serialization import Encoder
from yarrow.common.typeinfo import Types
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_files import FileSinkError
from yarrow.datastream.connectors.file_system import (
    BucketAssigner,
    BucketContext,
    FileCompactor,
    FileCompactStrategy,
    RollingPolicy,
)
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

CONCAT = FileCompactor.concat_file_compactor()
OTHER_JOB = "e" * 32


class ByFirstLetter(BucketAssigner):
    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return str(element[0])


def strategy(checkpoints: int = 0, size: int = -1, threads: int = 1) -> FileCompactStrategy:
    builder = FileCompactStrategy.builder().set_size_threshold(size).set_num_compact_threads(threads)
    return (builder.enable_compaction_on_checkpoint(checkpoints) if checkpoints else builder).build()


def text_sink(folder: Path, when: FileCompactStrategy | None, how: FileCompactor = CONCAT) -> FileSink:
    builder = (
        FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
        .with_bucket_assigner(ByFirstLetter())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    )
    return (builder.disable_compact() if when is None else builder.enable_compact(when, how)).build()


class Running:
    """One writer of a sink, with its committer."""

    def __init__(
        self, sink: FileSink, context: SinkContext | None = None, restored: Sequence[Any] = ()
    ) -> None:
        self.committer = sink.create_committer()
        self.writer = sink.create_writer(context or SinkContext(), restored)
        self.checkpoints = 0

    def prepare(self, *rows: Any) -> tuple[list[Any], list[Any]]:
        """Writes a checkpoint's rows; the stored committables and state."""
        self.writer.write(rows, None)
        self.writer.flush(end_of_input=False)
        self.checkpoints += 1
        prepared = self.writer.prepare_commit()
        return as_stored((prepared, self.writer.snapshot_state(self.checkpoints)))  # type: ignore[no-any-return]

    def checkpoint(self, *rows: Any) -> list[Any]:
        """A whole checkpoint; the state."""
        prepared, state = self.prepare(*rows)
        self.committer.commit(prepared)
        return state

    def end(self) -> None:
        self.writer.flush(end_of_input=True)
        self.committer.commit(self.writer.prepare_commit())
        self.writer.close()


def visible(folder: Path) -> dict[str, list[str]]:
    """The text of the files of each bucket."""
    files = [path for path in sorted(folder.rglob("*part-*")) if path.is_file() and path.name[0] != "."]
    found: dict[str, list[str]] = {}
    for path in files:
        found.setdefault(path.parent.name, []).append(path.read_text().replace("\n", " ").strip())
    return found


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.is_file()]


def test_files_of_a_bucket_are_merged_after_so_many_checkpoints(tmp_path: Path) -> None:
    sink = Running(text_sink(tmp_path, strategy(3)))
    sink.checkpoint("a1", "b1")
    sink.checkpoint("a2")
    assert visible(tmp_path) == {}
    sink.checkpoint("a3")
    assert visible(tmp_path) == {"a": ["a1 a2 a3"], "b": ["b1"]}
    assert [path.name[:15] for path in sorted(tmp_path.rglob("compacted*"))] == ["compacted-part-"]
    sink.checkpoint("b2")
    sink.end()
    assert visible(tmp_path) == {"a": ["a1 a2 a3"], "b": ["b1", "b2"]}
    assert hidden(tmp_path) == []


def test_files_of_a_bucket_are_merged_when_they_are_large_enough(tmp_path: Path) -> None:
    sink = Running(text_sink(tmp_path, strategy(size=7, threads=2)))
    sink.checkpoint("a1", "b1")
    sink.checkpoint("a2", "b2")
    assert visible(tmp_path) == {}
    sink.checkpoint("a3", "b3")
    assert visible(tmp_path) == {"a": ["a1 a2 a3"], "b": ["b1 b2 b3"]}
    sink.end()


def test_a_delimiter_stands_between_two_files(tmp_path: Path) -> None:
    sink = Running(text_sink(tmp_path, strategy(9), FileCompactor.concat_file_compactor(b"--")))
    for row in ("a1", "a2", "a3"):
        sink.checkpoint(row)
    sink.end()
    assert visible(tmp_path) == {"a": ["a1 --a2 --a3"]}


@pytest.mark.parametrize("columnar", [False, True])
def test_parquet_files_are_merged_by_their_records(tmp_path: Path, columnar: bool) -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.LONG()])
    how = FileCompactor.record_wise_file_compactor(ParquetColumnarRowInputFormat(row_type, columnar=columnar))
    builder = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(row_type))
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    sink = Running(builder.enable_compact(strategy(9), how).build())
    for number in range(4):
        sink.checkpoint((number,))
    sink.end()
    (file,) = [path for path in tmp_path.iterdir() if path.is_file()]
    assert pq.read_table(file).to_pylist() == [{"n": number} for number in range(4)]
    assert hidden(tmp_path) == []


def test_several_files_are_refused_by_the_compactor_of_one(tmp_path: Path) -> None:
    sink = Running(text_sink(tmp_path, strategy(2), FileCompactor.identical_file_compactor()))
    sink.checkpoint("a1")
    with pytest.raises(FileSinkError, match=r"takes one file, and 2 files wait for .*compacted-part"):
        sink.checkpoint("a2")


def test_waiting_files_outlive_a_restore_at_any_point(tmp_path: Path) -> None:
    """Restored from the second checkpoint: after it was complete, after the merge, and after the merge's commit."""
    for point in range(3):
        folder = tmp_path / str(point)
        first = Running(text_sink(folder, strategy(3)))
        first.checkpoint("a1")
        state = first.checkpoint("a2")
        restored, prepared = 2, list[Any]()
        if point > 0:
            prepared, later = first.prepare("a3")
        if point > 1:
            restored, state = 3, later
            first.committer.commit(prepared)
        context = SinkContext(restored_checkpoint_id=restored)
        again = Running(text_sink(folder, strategy(3)), context)
        if point > 1:
            again.committer.commit(prepared)
        again.writer.close()
        again = Running(text_sink(folder, strategy(3)), context, state)
        again.checkpoint(*(["a3"] if point < 2 else []))
        again.checkpoint("a4")
        again.end()
        assert " ".join(visible(folder)["a"]) == "a1 a2 a3 a4"
        assert hidden(folder) == []


def test_a_merge_that_no_checkpoint_holds_is_undone(tmp_path: Path) -> None:
    first = Running(text_sink(tmp_path, strategy(2)))
    state = first.checkpoint("a1")
    prepared, _ = first.prepare("a2")
    first.committer.abort(prepared)
    first.writer.close()
    again = Running(text_sink(tmp_path, strategy(2)), SinkContext(restored_checkpoint_id=1), state)
    again.end()
    assert visible(tmp_path) == {"a": ["a1"]}
    assert hidden(tmp_path) == []


def test_files_that_no_checkpoint_names_go_when_the_writer_is_closed(tmp_path: Path) -> None:
    sink = Running(text_sink(tmp_path, strategy(3)))
    sink.writer.write(["a1"], None)
    sink.writer.flush(end_of_input=False)
    assert sink.writer.prepare_commit() == []
    sink.writer.close()
    assert hidden(tmp_path) == []


def test_waiting_files_are_shared_among_other_subtasks(tmp_path: Path) -> None:
    sink = text_sink(tmp_path, strategy(5))
    state = [
        waiting
        for subtask in range(2)
        for waiting in Running(sink, SinkContext(subtask, 2)).checkpoint(f"a{subtask}", f"b{subtask}")
    ]
    for subtask in range(3):
        Running(sink, SinkContext(subtask, 3, restored_checkpoint_id=1), state[subtask::3]).end()
    assert {bucket: sorted(" ".join(texts).split()) for bucket, texts in visible(tmp_path).items()} == {
        "a": ["a0", "a1"],
        "b": ["b0", "b1"],
    }
    assert hidden(tmp_path) == []


def test_without_compaction_waiting_files_become_visible_one_by_one(tmp_path: Path) -> None:
    first = Running(text_sink(tmp_path, strategy(5)))
    first.checkpoint("a1")
    state = first.checkpoint("a2")
    again = Running(text_sink(tmp_path, None), SinkContext(restored_checkpoint_id=2), state)
    again.checkpoint("a3")
    again.end()
    assert sorted(visible(tmp_path)["a"]) == ["a1", "a2", "a3"]
    assert hidden(tmp_path) == []


def test_a_job_from_a_savepoint_leaves_the_files_of_the_job_that_goes_on(tmp_path: Path) -> None:
    first = Running(text_sink(tmp_path, strategy(2)))
    state = first.checkpoint("a1")
    context = replace(SinkContext(restored_checkpoint_id=1), job_id=OTHER_JOB)
    second = Running(text_sink(tmp_path, strategy(2)), context, state)
    first.checkpoint("a2")
    first.end()
    second.checkpoint("a3")
    second.end()
    assert sorted(visible(tmp_path)["a"]) == ["a1 a2", "a1 a3"]
    assert hidden(tmp_path) == []
    with pytest.raises(FileSinkError, match="does not exist any more, though a checkpoint names it"):
        Running(text_sink(tmp_path, strategy(2)), context, state)
