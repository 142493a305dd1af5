"""WriteMode.OVERWRITE: former files go behind the commits of the new ones, and stay if there are no commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.datastream.connectors.harness import SinkContext
from yarrow.batch.dataset.output.replacing_file_sink import ReplacingFileSink
from yarrow.batch.dataset.output.replacing_file_writer import FormerFiles, ReplacingFileWriter
from yarrow.common import Encoder
from yarrow.container.batch.commits import decode_committables, encode_committables
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner


def sink_into(folder: Path) -> ReplacingFileSink:
    builder = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    return ReplacingFileSink.of(
        builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    )


def written(folder: Path, *rows: str, subtask: int = 0, parallelism: int = 1) -> list[Any]:
    """The committables of one subtask, in the form in which they are stored until the commit."""
    context: Any = SinkContext(subtask_index=subtask, parallelism=parallelism)
    writer: ReplacingFileWriter = sink_into(folder).create_writer(context)
    if rows:
        writer.write(rows, None)
    writer.flush(end_of_input=True)
    committables = writer.prepare_commit()
    writer.close()
    return decode_committables(encode_committables(committables))


def commit(folder: Path, committables: list[Any]) -> None:
    committer = sink_into(folder).create_committer()
    for each in committables:
        committer.commit([each])


def lines(folder: Path) -> list[str]:
    return sorted(
        line for path in folder.rglob("*") if path.is_file() for line in path.read_text().splitlines()
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / "day=1").mkdir(parents=True)
    (tmp_path / "out" / "part-1").write_text("old\n")
    (tmp_path / "out" / "day=1" / "part-2").write_text("old too\n")
    (tmp_path / "out" / ".hidden").write_text("old and hidden\n")
    return tmp_path / "out"


def test_former_files_go_behind_the_last_commit(folder: Path) -> None:
    committables = [
        *written(folder, "a", subtask=0, parallelism=2),
        *written(folder, "b", subtask=1, parallelism=2),
    ]
    assert {"old", "old too", "old and hidden"} <= set(lines(folder))
    assert [type(each) is FormerFiles for each in committables] == [False, False, True]
    commit(folder, committables[:2])
    assert {"a", "b", "old", "old too", "old and hidden"} == set(lines(folder))
    commit(folder, committables[2:])
    assert lines(folder) == ["a", "b"]
    assert not (folder / "day=1").exists()


def test_a_commit_that_is_repeated_removes_no_new_file(folder: Path) -> None:
    committables = written(folder, "a")
    for _ in range(2):
        commit(folder, committables)
        assert lines(folder) == ["a"]


def test_a_job_without_rows_replaces_all_by_nothing(folder: Path) -> None:
    commit(folder, written(folder))
    assert lines(folder) == []
    assert folder.exists()
    assert written(folder) == []


def test_a_folder_that_is_missing_has_no_former_files(tmp_path: Path) -> None:
    assert written(tmp_path / "new") == []
    commit(tmp_path / "new", written(tmp_path / "new", "a"))
    assert lines(tmp_path / "new") == ["a"]


def test_results_that_are_not_committed_leave_the_former_files(folder: Path) -> None:
    committables = written(folder, "a")
    sink_into(folder).create_committer().abort(committables)
    assert lines(folder) == ["old", "old and hidden", "old too"]


def test_files_of_another_sink_of_the_job_stay(folder: Path) -> None:
    context: Any = SinkContext(sink_id="7" * 32)
    other = sink_into(folder).create_writer(context)
    other.write(["other"], None)
    other.flush(end_of_input=True)
    committables = written(folder, "a")
    commit(folder, committables)
    commit(folder, other.prepare_commit()[:1])
    other.close()
    assert lines(folder) == ["a", "other"]


def test_the_sink_of_a_default_file_system_replaces_too() -> None:
    sink = sink_into(Path("/out")).with_default_scheme("hdfs://name:8020/")
    assert type(sink) is ReplacingFileSink
    assert sink._settings.base_path == "hdfs://name:8020/out"
