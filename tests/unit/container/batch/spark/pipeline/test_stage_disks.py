"""A full disk of a stage: the folder that is full is named, with the remedy of whoever has filled the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from tests.support.small_disk import small_disk
from yarrow.container.batch.spark.pipeline.stage_disks import StageDisks, StageOutput

_LOST = (
    "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted due to stage failure:"
    " Task 1 in stage 2.0 failed, most recent failure: Lost task 1.0 in stage 2.0 (TID 5) (host executor driver): "
)
OF_OUTPUT = (
    f"{_LOST}org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows.\n"
    "\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.executeTask(FileFormatWriter.scala:402)\n"
    "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
    "\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:549)\n"
)
OF_SPARK = (
    f"{_LOST}java.io.IOException: No space left on device\n"
    "\tat org.apache.spark.storage.DiskBlockObjectWriter.write(DiskBlockObjectWriter.scala:336)\n"
    "Caused by: java.lang.RuntimeException: more\n"
    "\tat org.apache.hadoop.fs.FileSystem.get(FileSystem.java:1)\n"
)
OF_FUNCTION = (
    f"{_LOST}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/work/job.py", line 12, in parse\n'
    "OSError: [Errno 28] No space left on device\n"
)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def disks_of(*outputs: StageOutput) -> StageDisks:
    return StageDisks(outputs, lambda text: "the disk of Spark is full: free it")


def output_in(folder: Path, name: str = "out", *, is_temporary: bool = False) -> StageOutput:
    return StageOutput(name, f"{folder}/{name}", f"{folder}/.{name}.yarrow-1", is_temporary)


@pytest.mark.parametrize("error", [Py4JError(OF_OUTPUT), FULL], ids=["Java", "Python"])
def test_the_disk_of_an_output_is_named_with_the_remedy_of_outputs(tmp_path: Path, error: Exception) -> None:
    output = output_in(tmp_path)
    told = disks_of(output).full_under(output, error)
    assert told.startswith(f"the disk of {tmp_path} is full (mounted on ")
    assert told.endswith(": free the disk, or name another path for the output")


def test_a_temporary_output_has_the_remedy_of_its_option(tmp_path: Path) -> None:
    output = output_in(tmp_path, is_temporary=True)
    told = disks_of(output).full_under(output, Py4JError(OF_OUTPUT))
    assert told.startswith(f"the disk of {tmp_path} is full (mounted on ")
    assert told.endswith(" or name a folder on a larger one (execution.batch.pipeline-directory)")


@pytest.mark.parametrize("path", ["/out", "hdfs://name:8020/out"])
def test_the_disk_of_spark_is_named_wherever_the_output_is(path: str) -> None:
    output = StageOutput("out", path, f"{path}.hidden", is_temporary=False)
    told = "Spark cannot write its own files: the disk of Spark is full: free it"
    assert disks_of(output).full_under(output, Py4JError(OF_SPARK)) == told
    assert disks_of(output).full_in_function(Py4JError(OF_SPARK)) == told


def test_a_function_of_spark_that_fills_a_disk_is_no_full_disk_of_the_output(tmp_path: Path) -> None:
    output = output_in(tmp_path)
    assert disks_of(output).full_under(output, Py4JError(OF_FUNCTION)) == ""
    assert disks_of(output).full_in_function(Py4JError(OF_FUNCTION)) == ""
    assert disks_of(output).full_under(output, Py4JError(_LOST)) == ""
    assert disks_of(output).full_in_function(ValueError("No number")) == ""


def test_a_full_hdfs_is_told_without_a_disk() -> None:
    output = StageOutput("out", "hdfs://name:8020/out", "hdfs://name:8020/.out", is_temporary=True)
    told = disks_of(output).full_under(output, Py4JError("File /x could only be written to 0 of the 1 nodes"))
    assert told == (
        "the storage is full, or a quota is used up: make room, or name a folder on a larger one"
        " (execution.batch.pipeline-directory)"
    )


def test_a_function_that_fills_the_folder_of_an_output_names_that(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2) as disk:
        first, second = output_in(tmp_path, "first"), output_in(disk, "second")
        os.mkdir(second.folder)
        disks = disks_of(first, second)
        elsewhere = disks_of().full_in_function(FULL)
        assert elsewhere.startswith(
            "a disk to which the function writes is full: free the disk, or let the function "
        )
        # The disk has room, and no file is named.
        assert disks.full_in_function(FULL) == elsewhere
        named = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{first.folder}/part")
        assert disks.full_in_function(named).startswith(f"output 'first': the disk of {tmp_path} is full (")
        with pytest.raises(OSError, match="No space left") as raised:
            Path(second.folder, "large").write_bytes(bytes(3 << 20))
        told = disks.full_in_function(raised.value)
        assert told.startswith(
            f"output 'second': the disk of {disk} is full (mounted on {disk}, 2 MB, of which 0 are"
        )
        assert told.endswith(": free the disk, or name another path for the output")
        assert disks.full_in_function(OSError(errno.ENOSPC, "", "/other/place")) == elsewhere
