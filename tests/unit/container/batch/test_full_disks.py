"""Full disks: told with the disk, the folder and the remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from tests.support.small_disk import small_disk
from yarrow.container.batch.full_disks import (
    executor_disks,
    failure_of_task,
    full_disk,
    means_full,
    tells_of_full_disk,
)
from yarrow.container.batch.spilled_runs import SpilledRuns, SpillError
from yarrow.container.protocol.failure import OperatorFailure, failure_cause
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.retries import Retries, TransientError

#: As Spark tells it.
SPARK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 2.0 failed 1 times,"
    " most recent failure: Lost task 1.0 in stage 2.0 (TID 5): java.io.IOException: No space left on device\n"
    "\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)"
)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_errors_of_full_disks_are_known(number: int) -> None:
    assert means_full(OSError(number, os.strerror(number)))
    assert tells_of_full_disk(SPARK)
    assert tells_of_full_disk(f"java.io.IOException: {os.strerror(number)}")


def test_other_errors_are_not() -> None:
    assert not means_full(OSError(errno.EACCES, "no"))
    assert not means_full(ValueError("No space left on device"))
    assert not tells_of_full_disk("Lost task 1.0 in stage 2.0 (TID 5): java.io.EOFException")


def test_the_disk_of_a_folder_that_is_gone_is_that_of_its_parent(tmp_path: Path) -> None:
    text = full_disk(tmp_path / "gone" / "too")
    assert text.startswith(f"the disk of {tmp_path}/gone/too is full (mounted on /")
    assert "process.working-dir" in text


def test_the_remedy_is_that_of_whoever_gave_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_yarn = tmp_path / "usercache" / "joe" / "appcache" / "application_17_0042"
    assert "let YARN's NodeManagers write to a larger one (yarn.nodemanager.local-dirs)" in full_disk(
        of_yarn / "container_17_0042_01_000002" / "yarrow-te-1"
    )
    assert "yarn.nodemanager" not in full_disk(tmp_path / "usercache" / "joe" / "application_17_0042")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/first,{tmp_path}/second")
    assert "let Spark's workers write to a larger one (SPARK_LOCAL_DIRS" in full_disk(
        tmp_path / "second" / "job"
    )
    assert "process.working-dir" in full_disk(tmp_path / "other")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(of_yarn))
    assert "yarn.nodemanager.local-dirs" in full_disk(of_yarn / "job")


def test_an_executor_tells_its_folders_and_their_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor_disks.cache_clear()
    try:
        with small_disk(tmp_path / "disk", 3) as disk:
            monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{disk}/of-spark,{tmp_path}")
            first, _, second = executor_disks().partition("), ")
        assert first == f"{disk}/of-spark (mounted on {disk}, 3 MB"
        assert second.startswith(f"{tmp_path} (mounted on /")
        executor_disks.cache_clear()
        monkeypatch.delenv("SPARK_LOCAL_DIRS")
        assert executor_disks() == ""
    finally:
        executor_disks.cache_clear()


def test_a_task_that_cannot_start_for_a_full_disk_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "the start of a task of batch mode"
    named = failure_of_task(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "job")), where)
    assert f"the disk of {tmp_path}/job is full (mounted on " in named.message
    assert "process.working-dir" in named.message and "operator" not in named.message
    # Python does not name a file that is open already.
    unnamed = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    cause = failure_of_task(unnamed, where)
    assert (
        f"the disk of {tmp_path} is full (mounted on " in cause.message
        and "SPARK_LOCAL_DIRS" in cause.message
    )
    assert not cause.is_final


def test_rows_that_fill_the_disk_name_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        runs = SpilledRuns(disk / "rows", bytes, bytes)
        with pytest.raises(SpillError) as raised:
            runs.add(bytes(100_000) for _ in range(20))
        runs.close()
    text = str(raised.value)
    assert not failure_of_task(raised.value, "task 'rows'").is_final
    assert (
        f"cannot be written to {disk}/rows: the disk of {disk}/rows is full (mounted on {disk}, 1 MB, of which 0"
        in text
    )
    assert "(process.working-dir)" in text and text.endswith("or raise execution.batch.sort-memory")


def test_a_function_that_fills_a_disk_is_told_with_the_remedy(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "out" / "file"))
    failure = OperatorFailure("files", "", error)
    cause = failure_of_task(failure, "task 'files'")
    assert f"the disk of {tmp_path}/out/file is full (mounted on " in cause.message
    assert cause.message.endswith("free the disk, or let the operator 'files' write to another one")
    unnamed = OperatorFailure("files", "", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert "a disk to which it writes is full" in failure_of_task(unnamed, "task 'files'").message
    assert not cause.is_final, "another attempt may find room"
    other = OperatorFailure("files", "", ValueError("no"))
    expected = failure_cause(other, "task 'files'")
    assert failure_of_task(other, "task 'files'") == msgspec.structs.replace(expected, is_final=True)


def test_storage_that_is_away_may_be_back_for_another_attempt() -> None:
    """As a request fails that was repeated for as long as the configuration says."""

    def refused(failures: int) -> None:
        raise TransientError("/out: the NameNode is in safe mode and takes no changes")

    with pytest.raises(FileSystemError) as raised:
        Retries(0.0, "fs.webhdfs.retry-timeout").run(refused)
    cause = failure_of_task(OperatorFailure("files", "", raised.value), "task 'files'")
    assert not cause.is_final and "in safe mode" in cause.message
    named = OperatorFailure("files", "", FileSystemError("/out: HDFS refused: no"))
    assert failure_of_task(named, "task 'files'").is_final


def test_a_full_disk_is_found_behind_each_error_that_was_made_of_it() -> None:
    export = RuntimeError("the export has failed")
    export.__cause__ = ValueError("no row was written")
    export.__cause__.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not failure_of_task(OperatorFailure("files", "", export), "task 'files'").is_final
    # Programs may tie causes to a circle.
    circle = RuntimeError("one")
    circle.__cause__ = RuntimeError("two")
    circle.__cause__.__cause__ = circle
    assert failure_of_task(OperatorFailure("files", "", circle), "task 'files'").is_final
