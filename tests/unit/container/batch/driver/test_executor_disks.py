"""The disk of an executor, named by what its task has told: Java's error names no folder."""

from __future__ import annotations

from yarrow.container.batch.driver import executor_disks
from yarrow.container.batch.driver.executor_disks import ExecutorDisks
from yarrow.container.batch.driver.task_messages import AttemptStarted

#: As Spark tells it.
ERROR = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times,"
    " most recent failure: Lost task 1.3 in stage 2.0 (TID 9) (node-7.example executor 3): java.io.IOException:"
    " No space left on device"
)
ON_YARN = "/data/usercache/joe/appcache/application_17_0042 (mounted on /data, 24 MB)"


def started(task_id: int, disks: str) -> AttemptStarted:
    return AttemptStarted(run=0, stage=0, subtask=1, attempt=3, pid=7, task_id=task_id, disks=disks)


def test_the_executor_its_folder_and_the_remedy_on_yarn_are_named() -> None:
    disks = ExecutorDisks()
    disks.started(started(9, ON_YARN))
    disks.started(started(10, "/other (mounted on /, 1 MB)"))
    assert disks.full_disk(ERROR) == (
        f"the disk of executor 3 on node-7.example is full, where it writes to {ON_YARN}: free the disk, or let YARN's"
        " NodeManagers write to a larger one (yarn.nodemanager.local-dirs)"
    )


def test_an_executor_elsewhere_has_sparks_remedy() -> None:
    disks = ExecutorDisks()
    assert disks.full_disk(ERROR).startswith(
        "the disk of executor 3 on node-7.example is full: free the disk, or let Spark's workers write to a larger one"
    )
    assert "SPARK_LOCAL_DIRS" in disks.full_disk("java.io.IOException: No space left on device")


def test_a_task_that_has_told_nothing_has_the_remedy_of_the_others() -> None:
    disks = ExecutorDisks()
    disks.started(started(1, ON_YARN))
    disks.started(started(9, ""))
    assert "where it writes" not in disks.full_disk(ERROR)
    assert "yarn.nodemanager.local-dirs" in disks.full_disk(ERROR)


def test_where_nobody_tells_anything_the_given_remedy_is_told() -> None:
    text = ExecutorDisks("ask the owner").full_disk(ERROR)
    assert text == "the disk of executor 3 on node-7.example is full: free the disk, or ask the owner"


def test_only_the_latest_tasks_are_remembered() -> None:
    disks = ExecutorDisks()
    disks.started(started(9, ON_YARN))
    for task in range(100, 100 + executor_disks._KEPT - 1):
        disks.started(started(task, "/other (mounted on /, 1 MB)"))
    assert ON_YARN in disks.full_disk(ERROR)
    disks.started(started(99, "/other (mounted on /, 1 MB)"))
    assert ON_YARN not in disks.full_disk(ERROR)
