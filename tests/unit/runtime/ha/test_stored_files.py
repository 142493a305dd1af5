"""What becomes of the files of a cluster id at its end: kept checkpoints stay, and nothing else."""

from __future__ import annotations

from pathlib import Path

from yarrow.runtime.ha.settings import CHECKPOINTS_FOLDER
from yarrow.runtime.ha.stored_files import KEPT_FILE, mark_kept, remove_stored_files


def stored(folder: Path, *jobs: str) -> Path:
    """The files of a cluster with a checkpoint of each job."""
    for name in ("blobs", "job-graphs"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
    for job in jobs:
        checkpoint = folder / CHECKPOINTS_FOLDER / job / "chk-1"
        checkpoint.mkdir(parents=True)
        (checkpoint / "_metadata").write_text(job)
    return folder


def test_all_goes_where_no_job_keeps_checkpoints(tmp_path: Path) -> None:
    folder = stored(tmp_path / "cluster", "first", "second")
    remove_stored_files(str(folder))
    assert list(tmp_path.iterdir()) == []
    remove_stored_files(str(folder))
    remove_stored_files(str(stored(folder)))
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoints_of_a_job_that_keeps_them_stay_alone(tmp_path: Path) -> None:
    folder = stored(tmp_path / "cluster", "first", "second")
    for why in ("rows were lost once", "rows are lost"):
        mark_kept(str(folder / CHECKPOINTS_FOLDER / "second"), why)
    for _ in range(2):
        remove_stored_files(str(folder))
    kept = folder / CHECKPOINTS_FOLDER / "second"
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert files == {kept / KEPT_FILE, kept / "chk-1" / "_metadata"}
    assert (kept / KEPT_FILE).read_text() == "rows are lost\n"


def test_a_job_whose_kept_checkpoint_another_job_deleted_keeps_nothing(tmp_path: Path) -> None:
    folder = stored(tmp_path / "cluster", "first")
    job = folder / CHECKPOINTS_FOLDER / "first"
    mark_kept(str(job), "rows are lost")
    (job / "chk-1" / "_metadata").unlink()
    (job / "chk-1").rmdir()
    remove_stored_files(str(folder))
    assert list(tmp_path.iterdir()) == []
