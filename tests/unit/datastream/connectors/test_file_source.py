"""FileSource: files and splits, lines over split boundaries, snapshots, malformed lines."""

from __future__ import annotations

import bz2
import gzip
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.datastream.connectors.harness import SourceHarness, run, run_with_restores
from yarrow.datastream.connectors import line_blocks
from yarrow.datastream.connectors.base import Boundedness, NothingAvailable
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.file_format import FileFormatError, FileSourceSplit
from yarrow.datastream.connectors.file_source import FileSourceError
from yarrow.datastream.connectors.file_system import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
    MalformedPolicy,
    MalformedRecordError,
    StreamFormat,
)
from yarrow.datastream.connectors.line_blocks import LineBlocks
from yarrow.runtime.common.errors import InvalidProgramError

one_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
LINES = st.lists(st.text("aé€ \t", max_size=12), max_size=30)


def text_source(*paths: Path | str, split_bytes: int | None = None, **settings: Any) -> FileSource[str]:
    builder = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(**settings), *[str(path) for path in paths]
    )
    if split_bytes is not None:
        builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator(split_bytes))
    return builder.build()


def expected(lines: list[str], ends_with_newline: bool) -> list[str]:
    # An empty last line without an end is no line.
    return lines if ends_with_newline or not lines or lines[-1] else lines[:-1]


def write(path: Path, lines: list[str], newline: str, ends_with_newline: bool) -> None:
    text = newline.join(lines) + (newline if ends_with_newline and lines else "")
    path.write_bytes(text.encode())


@one_file
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 40), st.integers(1, 9))
def test_each_line_belongs_to_one_split(
    tmp_path: Path, lines: list[str], newline: str, ends: bool, split_bytes: int, max_rows: int
) -> None:
    file = tmp_path / "lines.txt"
    write(file, lines, newline, ends)
    source = text_source(file, split_bytes=split_bytes)
    assert run(source, 1, max_rows) == expected(lines, ends)


@one_file
@given(LINES, st.booleans(), st.integers(1, 60), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_restored_readers_give_the_rest(
    tmp_path: Path,
    lines: list[str],
    ends: bool,
    split_bytes: int,
    max_rows: int,
    polls: int,
    parallelism: int,
) -> None:
    file = tmp_path / "lines.txt"
    write(file, lines, "\n", ends)
    rows = run_with_restores(text_source(file, split_bytes=split_bytes), parallelism, max_rows, polls)
    assert sorted(rows) == sorted(expected(lines, ends))


@one_file
@given(LINES, st.integers(1, 30), st.integers(0, 120))
def test_blocks_of_any_size_are_whole_lines(tmp_path: Path, lines: list[str], size: int, offset: int) -> None:
    file = tmp_path / "lines.txt"
    write(file, lines, "\n", True)
    data = file.read_bytes()
    offset = min(offset, len(data))
    split = FileSourceSplit("s", str(file), offset, len(data) - offset, len(data))
    blocks = LineBlocks(split, size)
    found = []
    while (block := blocks.next()) is not None:
        assert block.endswith(b"\n")
        found.append(block)
    blocks.close()
    begins_line = offset == 0 or data[offset - 1 : offset] == b"\n"
    start = offset if begins_line else data.index(b"\n", offset) + 1
    assert b"".join(found) == data[start:]
    assert blocks.offset == len(data) or not found


def test_folders_patterns_and_hidden_files(tmp_path: Path) -> None:
    for name in ("b/2.txt", "a/1.txt", "a/deep/3.txt", "a/.hidden", "_tmp/x.txt", ".git/y.txt", "a/4.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name + "\n")
    assert run(text_source(tmp_path)) == ["a/1.txt", "a/4.log", "a/deep/3.txt", "b/2.txt"]
    assert run(text_source(tmp_path / "*" / "*.txt")) == ["a/1.txt", "b/2.txt"]
    assert run(text_source(tmp_path / "a" / ".hidden")) == ["a/.hidden"]
    assert run(text_source(f"file://{tmp_path}/b")) == ["b/2.txt"]


def test_compressed_files_are_one_split(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(5000)]
    data = "".join(line + "\n" for line in lines).encode()
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    (tmp_path / "b.bz2").write_bytes(bz2.compress(data))
    source = text_source(tmp_path, split_bytes=100)
    harness = SourceHarness(source)
    assert harness.run() == lines * 2
    assert len(harness.assigned) == 2
    assert run_with_restores(source, 1, 700, 3) == lines * 2


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert run(text_source(tmp_path / "bom.txt")) == ["one", "two"]


def test_missing_input_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "such.txt"
    with pytest.raises(InvalidProgramError, match=str(missing)):
        text_source(missing).validate()
    with pytest.raises(InvalidProgramError, match="no file at"):
        text_source(tmp_path / "*.txt").validate()
    with pytest.raises(InvalidProgramError, match="gopher"):
        text_source("gopher://host/file").validate()


def test_a_file_that_goes_is_named(tmp_path: Path) -> None:
    file = tmp_path / "gone.txt"
    file.write_text("x\n")
    harness = SourceHarness(text_source(file))
    file.unlink()
    with pytest.raises(FileSourceError, match=r"gone\.txt"):
        harness.poll()


def test_malformed_text_fails_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(b"one\ntwo\n\xff\xfe\nfour\n")
    with pytest.raises(MalformedRecordError, match=r"bad\.txt, line 3: not UTF-8"):
        run(text_source(file))


@pytest.mark.parametrize("split_bytes", [None, 3, 7])
def test_malformed_text_can_be_skipped_or_sent_aside(tmp_path: Path, split_bytes: int | None) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(b"one\ntwo\n\xff\xfe\nfour\n\xffx\n")
    skipping = SourceHarness(text_source(file, split_bytes=split_bytes, on_malformed=MalformedPolicy.SKIP))
    assert skipping.run() == ["one", "two", "four"]
    assert (skipping.num_errors, skipping.side) == (2, [])
    aside = SourceHarness(
        text_source(file, split_bytes=split_bytes, on_malformed=MalformedPolicy.SIDE_OUTPUT)
    )
    assert aside.run() == ["one", "two", "four"]
    assert [(tag, record.split, record.position) for tag, record in aside.side] == [
        ("malformed-records", str(file), 3),
        ("malformed-records", str(file), 5),
    ]
    assert all(isinstance(record, DeadLetter) for _, record in aside.side)


@pytest.mark.parametrize("max_rows", [1, 2, 3])
def test_malformed_lines_come_once_over_restores(tmp_path: Path, max_rows: int) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(b"one\n\xff\ntwo\nthree\n" * 3)
    source = text_source(file, on_malformed=MalformedPolicy.SIDE_OUTPUT)
    state, lines = None, []
    for _ in range(12):
        harness = SourceHarness(source, state=state)
        harness.poll(max_rows=max_rows)
        state = harness.snapshot()
        lines += [record.position for _, record in harness.side]
        harness.close()
    assert lines == [2, 6, 10]


def test_charsets_without_single_byte_newline_are_refused() -> None:
    with pytest.raises(ValueError, match="UTF-16"):
        StreamFormat.text_line_format("UTF-16")
    with pytest.raises(LookupError):
        StreamFormat.text_line_format("UTF-99")


def test_new_files_are_found_at_intervals(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("one\n")
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
        .monitor_continuously(timedelta(seconds=3))
        .build()
    )
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    harness = SourceHarness(source)
    harness.poll()
    assert isinstance(harness.poll(), NothingAvailable)
    (tmp_path / "2.txt").write_text("two\n")
    (tmp_path / "1.txt").write_text("changed\n")
    seconds, look_again = harness.later.pop()
    assert seconds == 3
    look_again()
    harness.poll()
    assert harness.rows == ["one", "two"]
    restored = SourceHarness(source, state=harness.snapshot())
    assert isinstance(restored.poll(), NothingAvailable)
    (tmp_path / "3.txt").write_text("three\n")
    restored.later.pop()[1]()
    restored.poll()
    assert restored.rows == ["three"]
    harness.close()
    restored.close()


def test_splits_of_a_failed_reader_go_to_another(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("one\ntwo\n")
    harness = SourceHarness(text_source(tmp_path), parallelism=2)
    lost = harness.assigned[0]
    harness.enumerator.add_splits_back([lost], 0)
    harness.enumerator.handle_split_request(1, None)
    assert harness.assigned[-1] == lost
    harness.close()


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_blocks, "LONGEST_RECORD", 1000)
    file = tmp_path / "endless.txt"
    file.write_bytes(b"x" * 600_000 + b"\n")
    with pytest.raises(FileFormatError, match=r"endless\.txt.*1000 bytes"):
        run(text_source(file))


def test_the_reader_that_asks_gets_the_next_split_by_path_and_offset(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b\n")
    (tmp_path / "a").write_text("a\n" * 20)
    builder: FileSourceBuilder[str] = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path)
    )
    builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator(16))
    source = builder.set_split_assigner(FileSplitAssignerProvider.locality_aware_split_assigner()).build()
    harness = SourceHarness(source, parallelism=2)
    rows = harness.run()
    harness.close()
    assert sorted(rows) == ["a"] * 20 + ["b"]
    given = [
        (Path(split.path).name, split.offset)
        for split in harness.assigned
        if isinstance(split, FileSourceSplit)
    ]
    assert given == [("a", 0), ("a", 20), ("b", 0)], "a file is cut evenly"
    with pytest.raises(TypeError, match="set_split_assigner takes a FileSplitAssignerProvider, not 'local'"):
        builder.set_split_assigner("local")  # type: ignore[arg-type]
