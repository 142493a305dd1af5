"""Files of a FileSink that the runs of a job take up: each once, whatever fails; and what compaction removes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import BatchRun, run_batch
from tests.unit.runtime.graph.programs import environment
from yarrow.batch import take_files_once
from yarrow.batch.file_ledger import _MOST_RECORDS, FileLedger
from yarrow.common.serialization import Encoder
from yarrow.common.typeinfo import Types
from yarrow.container.batch.commits import commit, remove_leftovers, sinks_of
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph

LINES = StreamFormat.text_line_format()


class Report:
    """A job that copies the lines of new files, as a schedule runs it again and again."""

    def __init__(self, folder: Path, *, remove: bool = False) -> None:
        self.input, self.output = folder / "in", folder / "out"
        self._remove = remove
        self._runs = 0
        self._files = 0

    def add(self, *lines: str) -> None:
        """What a FileSink leaves when it commits a file."""
        path = self.input / f"day={self._files % 3}" / f"part-{self._files}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        self._files += 1

    def graph(self) -> JobGraph:
        env = environment()
        lines = take_files_once(env, LINES, str(self.input), "report", remove=self._remove)
        sink = FileSink.for_row_format(str(self.output), Encoder.simple_string_encoder()).build()
        lines.map(checked, Types.STRING()).sink_to(sink).name("out")
        self._runs += 1
        return env.get_job_graph(f"run {self._runs}")

    def run(self) -> BatchRun:
        """A run up to the moment when its results are certain to be committed."""
        return run_batch(self.graph())

    def rows(self) -> list[str]:
        """What readers of the results see."""
        files = [path for path in self.output.rglob("*") if path.is_file() and ".staging" not in str(path)]
        return sorted(line for path in files for line in path.read_text().splitlines())


def checked(line: str) -> str:
    if line == "broken":
        raise ValueError("a broken line")
    return line


def commit_all(run: BatchRun, sinks: int | None = None) -> None:
    """As the SparkDriver commits; up to a number of sinks, as one that dies between."""
    for sink in sinks_of(run.graph)[:sinks]:
        operator = run.graph.vertex(sink.vertex_id).operators[sink.operator].id
        commit(run.graph, sink, run.committables[operator], Settings(), ManualClock())


def abandon(run: BatchRun, folder: Path) -> None:
    for sink in sinks_of(run.graph):
        remove_leftovers(run.graph, sink, Settings(), ManualClock(), folder)


def test_each_file_is_taken_by_one_run(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.add("a", "b")
    report.add("c")
    commit_all(report.run())
    assert report.rows() == ["a", "b", "c"]
    commit_all(report.run())
    assert report.rows() == ["a", "b", "c"]
    report.add("d")
    commit_all(report.run())
    assert report.rows() == ["a", "b", "c", "d"]


def test_a_folder_that_is_not_there_yet_has_no_files(tmp_path: Path) -> None:
    report = Report(tmp_path)
    commit_all(report.run())
    report.add("a")
    commit_all(report.run())
    assert report.rows() == ["a"]


def test_a_run_that_fails_takes_nothing(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.add("a")
    report.add("broken")
    with pytest.raises(OperatorFailure, match="Map"):
        report.run()
    (tmp_path / "in" / "day=1" / "part-1").write_text("b\n")
    commit_all(report.run())
    assert report.rows() == ["a", "b"]


def test_files_that_come_while_a_run_runs_are_taken_by_the_next_one(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.add("a")
    run = report.run()
    report.add("b")
    commit_all(run)
    assert report.rows() == ["a"]
    commit_all(report.run())
    assert report.rows() == ["a", "b"]


def test_hidden_files_are_not_taken(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.add("a")
    staging = tmp_path / "in" / ".staging-0123"
    staging.mkdir()
    (staging / ".part-9.inprogress.x").write_text("half\n")
    commit_all(report.run())
    assert report.rows() == ["a"]


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b", "a\nb", "a\\nb", "a\\\\b", "a\rb", "\udcff"])
def test_a_record_holds_each_name_that_a_file_can_have(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    (tmp_path / "plain").touch()
    ledger = FileLedger(str(tmp_path), "report")
    ledger.take(ledger.name_of(file.path) for file in ledger.untaken())
    assert ledger.taken() == {name, "plain"}
    assert ledger.untaken() == []


@pytest.mark.parametrize("remove", [False, True])
def test_files_are_taken_behind_the_commit_of_what_was_made_of_them(tmp_path: Path, remove: bool) -> None:
    """A sink whose commit fails for good leaves the files to the next run, and compaction has removed none."""
    report = Report(tmp_path, remove=remove)
    report.add("a")
    run = report.run()
    commit_all(run, 1)
    assert report.rows() == ["a"]
    assert [path.name for path in report.input.rglob("part-*")] == ["part-0"]
    assert FileLedger(str(report.input), "report").taken() == set()
    commit_all(run)
    assert FileLedger(str(report.input), "report").taken() == {"day=0/part-0"}


def test_two_names_take_each_for_itself(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.add("a")
    commit_all(report.run())
    assert FileLedger(str(report.input), "report").untaken() == []
    assert len(FileLedger(str(report.input), "another").untaken()) == 1


def test_compaction_removes_what_it_has_taken_and_nothing_else(tmp_path: Path) -> None:
    report = Report(tmp_path, remove=True)
    report.add("a")
    report.add("b")
    run = report.run()
    report.add("c")
    assert len(list(report.input.rglob("part-*"))) == 3
    commit_all(run)
    commit_all(run)
    assert [path.name for path in report.input.rglob("part-*")] == ["part-2"]
    assert report.rows() == ["a", "b"]


def test_records_of_taken_files_stay_few(tmp_path: Path) -> None:
    report = Report(tmp_path)
    ledger = FileLedger(str(report.input), "report")
    for number in range(2 * _MOST_RECORDS + 3):
        report.add(str(number))
        ledger.take(ledger.name_of(file.path) for file in ledger.untaken())
        assert ledger.untaken() == []
    assert len(list(Path(ledger.folder).iterdir())) <= _MOST_RECORDS
    (report.input / "day=0" / "part-0").unlink()
    assert len(ledger.taken()) == 2 * _MOST_RECORDS + 3


STEPS = st.lists(st.sampled_from(["file", "run", "lost", "died", "repeated"]), max_size=10)


@pytest.mark.slow
@given(STEPS, st.booleans())
@settings(max_examples=25, deadline=None)
def test_each_line_is_reported_once_over_any_course_of_runs(steps: list[str], remove: bool) -> None:
    """lost: a run ends before its results are certain. died: the driver dies between two commits, and the next one
    commits what is stored. repeated: it dies behind the last commit."""
    with tempfile.TemporaryDirectory() as folder:
        report = Report(Path(folder), remove=remove)
        lines: list[str] = []
        committed: list[str] = []
        for step in steps:
            if step == "file":
                lines.append(f"line {len(lines)}")
                report.add(lines[-1])
                continue
            run = report.run()
            if step == "lost":
                abandon(run, Path(folder) / "work")
                continue
            if step == "died":
                commit_all(run, 1)
            commit_all(run)
            if step == "repeated":
                commit_all(run)
            committed = list(lines)
            assert report.rows() == sorted(committed)
        assert report.rows() == sorted(committed)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", ".hidden"])
def test_a_name_that_is_no_part_of_a_path_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidProgramError, match="becomes part of a folder's name"):
        take_files_once(environment(), LINES, str(tmp_path), name)


def test_what_is_no_folder_or_no_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidProgramError, match="is a file: name the folder"):
        take_files_once(environment(), LINES, str(tmp_path / "file"), "report")
    with pytest.raises(InvalidProgramError, match="expected the path of a folder"):
        take_files_once(environment(), LINES, "", "report")
    source = FileSource.for_record_stream_format(LINES, str(tmp_path))
    with pytest.raises(InvalidProgramError, match="no format of a FileSource"):
        take_files_once(environment(), source, str(tmp_path), "report")  # type: ignore[arg-type]
