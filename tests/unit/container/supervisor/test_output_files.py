"""Lines are kept whole; nothing but listed files is served, whatever a request names."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yarrow.container.protocol.errors import UnknownLogFileError
from yarrow.container.supervisor.output_files import MAX_RAW_BYTES, OutputFiles, read_tail
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.rpc.output_stream import LoggedRecord


@pytest.fixture
def files(tmp_path: Path) -> OutputFiles:
    (tmp_path / "logs").mkdir()
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "logs" / "taskexecutor-other.log").write_text("another one's")
    opened = OutputFiles(tmp_path / "logs", ResourceID("host:1-a"))
    opened.write_log("started")
    os.symlink(tmp_path / "secret", tmp_path / "logs" / "taskexecutor-host_1-a.lnk")
    return opened


class Seen:
    """A sink that calls `look` with each stream and text, and keeps what it was told."""

    def __init__(self, look: Callable[[str, str], None] = lambda stream, text: None) -> None:
        self.lines: list[tuple[str, str]] = []
        self.records: list[LoggedRecord] = []
        self._look = look

    def write(self, stream: str, text: str) -> None:
        self._look(stream, text)
        self.lines.append((stream, text))

    def write_record(self, record: LoggedRecord) -> None:
        self.records.append(record)


def test_streams_go_to_their_files_and_then_to_the_sink(tmp_path: Path) -> None:
    def is_written(stream: str, text: str) -> None:
        suffix = ".err" if stream == "stderr" else ".out"
        assert (tmp_path / f"taskexecutor-te{suffix}").read_text().endswith(text)

    sink = Seen(is_written)
    record = LoggedRecord(name="job", level=30, created=0.0, message="a row")
    files = OutputFiles(tmp_path, ResourceID("te"), sink)
    files.write_output("stdout", "one\ntwo")
    files.write_output("stderr", "bad\n")
    files.write_output("stdout", "three\n")
    files.write_log("line")
    files.write_record(record, "WARNING job - a row\n")
    files.close()
    assert sink.records == [record]
    assert sink.lines == [("stdout", "one\ntwo\n"), ("stderr", "bad\n"), ("stdout", "three\n")]
    assert (tmp_path / "taskexecutor-te.out").read_text() == "one\ntwo\nthree\n"
    assert (tmp_path / "taskexecutor-te.err").read_text() == "bad\n"
    assert (tmp_path / "taskexecutor-te.log").read_text() == "line\nWARNING job - a row\n"


def test_a_full_disk_costs_lines_in_the_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Seen()
    files = OutputFiles(tmp_path, ResourceID("te"), sink)
    files.write_output("stdout", "before")
    write = os.write
    half: list[int | OSError] = [3, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    def full(fd: int, data: memoryview) -> int:
        left = half.pop(0) if len(half) > 1 else half[0]
        if isinstance(left, OSError):
            raise left
        return write(fd, data[:left])

    monkeypatch.setattr(os, "write", full)
    files.write_output("stdout", "cut off")
    files.write_output("stdout", "lost")
    monkeypatch.undo()
    files.write_output("stdout", "after")
    files.write_output("stdout", "the last")
    files.close()
    assert [text for _, text in sink.lines] == ["before\n", "cut off\n", "lost\n", "after\n", "the last\n"]
    (out,) = tmp_path.glob("*.out")
    assert out.read_text() == "before\ncut\nafter\nthe last\n"
    assert [record.getMessage().count("No space left on device") for record in caplog.records] == [1]


def test_list_names_own_plain_files_only(files: OutputFiles) -> None:
    assert [(info.name, info.size) for info in files.list()] == [("taskexecutor-host_1-a.log", 8)]
    assert files.read("taskexecutor-host_1-a.log", 2, 4) == b"arte"
    assert files.read("taskexecutor-host_1-a.log", -3, 100) == b"ed\n"
    assert files.read("taskexecutor-host_1-a.log", 1000, 100) == b""


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "taskexecutor-host_1-a.lnk",
        "taskexecutor-other.log",
        "/etc/passwd",
        "./taskexecutor-host_1-a.log",
        "",
        ".",
        "taskexecutor-host_1-a.log\0",
    ],
)
def test_no_other_name_is_served(files: OutputFiles, name: str) -> None:
    with pytest.raises(UnknownLogFileError, match=r"it has: taskexecutor-host_1-a\.log"):
        files.read(name, 0, 100)


@given(name=st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_arbitrary_names_are_refused(files: OutputFiles, name: str) -> None:
    with pytest.raises(UnknownLogFileError):
        files.read(name, 0, 100)


def test_resource_id_cannot_leave_the_folder(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path, ResourceID("../../x/y:1"))
    assert files.log_path.parent == tmp_path
    assert files.log_path.name == "taskexecutor-.._.._x_y_1.log"


def test_raw_file_that_has_grown_too_large_is_emptied(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path, ResourceID("te"))
    path = files.raw_path(3)
    for size, expected in [(10, 10), (MAX_RAW_BYTES + 1, 0)]:
        with path.open("wb") as file:
            file.truncate(size)
        os.close(files.open_raw(path))
        assert path.stat().st_size == expected


def test_tail_begins_at_the_workers_own_output_and_with_a_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    assert read_tail(path, 0) == ""
    path.write_text("predecessor\nfirst line\nsecond line\n")
    assert read_tail(path, len("predecessor\n")) == "first line\nsecond line"
    assert read_tail(path, 0, limit=15) == "second line"
