"""Outputs of a stage: there whole or not at all, whatever fails and however often the moves are repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from yarrow.container.batch.spark.pipeline import output_folders
from yarrow.container.batch.spark.pipeline.output_folders import (
    OutputLostError,
    commit,
    hidden_folder,
    prepare,
)
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.fs.local import LocalFileSystem
from yarrow.runtime.graph.batch.pipeline_storage import OutputExistsError
from yarrow.runtime.rpc.messages import OutputMove

JOB = JobID("1" * 32)


def move_of(folder: Path, name: str, *, replaces: bool = False) -> OutputMove:
    target = str(folder / name)
    return OutputMove(source=hidden_folder(target, JOB, "0-0"), target=target, replaces=replaces)


def written(folder: Path, name: str, *, replaces: bool = False) -> OutputMove:
    move = move_of(folder, name, replaces=replaces)
    Path(move.source).mkdir()
    Path(move.source, "part").write_text("new")
    return move


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_all_outputs_are_moved_and_a_second_time_nothing_happens(tmp_path: Path) -> None:
    moves = [written(tmp_path, "a"), written(tmp_path, "b")]
    commit(moves)
    commit(moves)
    assert contents(tmp_path) == {"a/part": "new", "b/part": "new"}


def test_what_a_dead_driver_has_begun_is_brought_to_its_end(tmp_path: Path) -> None:
    moves = [written(tmp_path, "a"), written(tmp_path, "b")]
    commit(moves[:1])
    commit(moves)
    assert contents(tmp_path) == {"a/part": "new", "b/part": "new"}


def test_no_output_is_moved_where_one_cannot_be(tmp_path: Path) -> None:
    moves = [written(tmp_path, "a"), written(tmp_path, "b")]
    (tmp_path / "b").mkdir()
    with pytest.raises(OutputExistsError, match=f"the path {tmp_path}/b exists"):
        commit(moves)
    assert not (tmp_path / "a").exists()
    output_folders.remove(moves)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_replaced_output_goes_when_all_are_in_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("old")
    moves = [written(tmp_path, "a", replaces=True), written(tmp_path, "b", replaces=True)]
    commit(moves)
    assert contents(tmp_path) == {"a/part": "new", "b/part": "new"}


@pytest.mark.parametrize("fails_at", range(4))
def test_after_any_failure_the_old_outputs_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("old")
    moves = [written(tmp_path, "a", replaces=True), written(tmp_path, "b", replaces=True)]
    rename, calls = LocalFileSystem.rename, iter(range(100))

    def failing(files: LocalFileSystem, source: str, target: str) -> None:
        if next(calls) == fails_at:
            raise OSError("the storage is away")
        rename(files, source, target)

    monkeypatch.setattr(LocalFileSystem, "rename", failing)
    with pytest.raises(OSError, match="the storage is away"):
        commit(moves)
    output_folders.remove(moves)
    assert contents(tmp_path) == {"a/part": "old", "b/part": "old"}
    # The next try succeeds, from what a later attempt writes.
    commit([written(tmp_path, "a", replaces=True), written(tmp_path, "b", replaces=True)])
    assert contents(tmp_path) == {"a/part": "new", "b/part": "new"}


def test_outputs_that_are_nowhere_are_lost(tmp_path: Path) -> None:
    with pytest.raises(OutputLostError, match="does not exist any more"):
        commit([move_of(tmp_path, "a")])


def test_a_new_attempt_removes_what_earlier_ones_of_its_job_have_left(tmp_path: Path) -> None:
    written(tmp_path, "a")
    other = Path(hidden_folder(str(tmp_path / "a"), JobID("2" * 32), "0-0"))
    other.mkdir()
    prepare(move_of(tmp_path, "a"), JOB)
    assert [path for path in tmp_path.iterdir()] == [other]
    prepare(move_of(tmp_path / "new", "a"), JOB)
    assert (tmp_path / "new").is_dir()


def test_a_folder_is_filled_by_a_file_that_readers_see(tmp_path: Path) -> None:
    folder = str(tmp_path / "a")
    assert output_folders.lack_of(folder) == "put nothing into the folder of"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "_SUCCESS").touch()
    assert output_folders.lack_of(folder) == "put nothing into the folder of"
    # A savepoint.
    (tmp_path / "a" / "_metadata").write_text("four")
    assert output_folders.lack_of(folder) is None
    assert output_folders.size_of(folder) == 4


def test_a_plain_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("four")
    assert output_folders.lack_of(str(tmp_path / "a")) == "written a plain file in place of the folder of"


def test_spark_gets_paths_that_name_their_file_system() -> None:
    paths = ("/a/b", "file:///a", "hdfs://name:8020/a")
    assert [output_folders.for_spark(path) for path in paths] == [
        "file:///a/b",
        "file:///a",
        "hdfs://name:8020/a",
    ]
