"""ExecutorDisks: where executors keep their files, as their tasks have told: an error of Java names no folder. Pure.

Owner: the run's lock. Executors may be on other hosts, so nothing is looked at here.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from yarrow.container.batch.driver.task_messages import AttemptStarted
from yarrow.container.batch.full_disks import REMEDY_OF_EXECUTORS, remedy

#: How Spark names a task and its executor.
_EXECUTOR: Final = re.compile(r"\(TID (\d+)\) \((\S+) executor (\S+)\)")
#: Tasks that are remembered. An executor writes rows of tasks that run, or have just ended.
_KEPT: Final = 10_000


class ExecutorDisks:
    """The disks of the executors of one run."""

    def __init__(self, unknown: str = REMEDY_OF_EXECUTORS) -> None:
        """`unknown`: the remedy for an executor whose folders nobody has told."""
        self._unknown = unknown
        #: By Spark's number of the task, the latest last. Few texts differ.
        self._by_task: dict[int, str] = {}

    def started(self, attempt: AttemptStarted) -> None:
        """Notes what an attempt has told of its executor."""
        if not attempt.disks:
            return
        self._by_task[attempt.task_id] = sys.intern(attempt.disks)
        if len(self._by_task) > _KEPT:
            del self._by_task[next(iter(self._by_task))]

    def full_disk(self, text: str) -> str:
        """The disk of the executor that Spark's error names, and the remedy."""
        found = _EXECUTOR.search(text)
        if found is None:
            return f"the disk of an executor is full: free the disk, or {self._remedy('')}"
        task, host, executor = found.groups()
        disks = self._by_task.get(int(task), "")
        where = f", where it writes to {disks}" if disks else ""
        return f"the disk of executor {executor} on {host} is full{where}: free the disk, or {self._remedy(disks)}"

    def _remedy(self, disks: str) -> str:
        """That of these disks, else that of any other executor."""
        known = disks or next(reversed(self._by_task.values()), "")
        return remedy(known) if known else self._unknown
