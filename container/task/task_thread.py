"""TaskThread: a thread that runs its tasks slice by slice, downstream first.

Owner: itself. One such thread serves all subtasks of a worker; a task that declares itself blocking gets its
own. Garbage is collected between slices only (see garbage_collection). Any thread may call `wake`.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

from yarrow.container.task.garbage_collection import GarbageCollection
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.task_life import TaskStage
from yarrow.runtime.common.clock import perf_counter

#: Longest sleep without work, in seconds: for idle-time collection and time accounting.
_IDLE_SECONDS = 1.0


class TaskThread:
    """A loop over tasks; `run` returns after `stop`."""

    def __init__(self, garbage: GarbageCollection | None = None) -> None:
        #: Downstream first.
        self._tasks: list[StreamTask] = []
        self._positions: dict[StreamTask, int] = {}
        self._mails: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._sleeping = False
        self._stopping = False
        #: The task whose slice is running.
        self._current: StreamTask | None = None
        self._garbage = garbage

    # ------------------------------------------------------------- any thread

    def post(self, mail: Callable[[], None]) -> None:
        """Runs `mail` on this thread soon."""
        self._mails.put(mail)
        task = self._current
        if task is not None:
            task.slices.chunk.cut()

    def wake(self) -> None:
        """Notes that something has changed for one of the tasks."""
        if self._sleeping:
            self._mails.put(None)

    def stop(self) -> None:
        """Ends the loop after the present slice."""

        def end() -> None:
            self._stopping = True

        self.post(end)

    # ------------------------------------------------------------- this thread

    @property
    def tasks(self) -> list[StreamTask]:
        """The tasks that have not ended."""
        return self._tasks

    def add(self, task: StreamTask, position: int) -> None:
        """Adds a task; of two tasks, the one with the smaller `position` is upstream."""
        self._tasks.append(task)
        self._positions[task] = position
        self._tasks.sort(key=lambda entry: -self._positions[entry])

    def run(self) -> None:
        """Runs the loop."""
        while not self._stopping:
            progressed = False
            for task in self._tasks:
                if self._step(task):
                    progressed = True
            if any(task.life.stage is TaskStage.ENDED for task in self._tasks):
                self._forget_ended()
            self._run_mails()
            if self._garbage is not None:
                self._garbage.between_slices()
            if not progressed:
                self._sleep()

    def _step(self, task: StreamTask) -> bool:
        self._current = task
        progressed = task.step()
        self._current = None
        return progressed

    def _forget_ended(self) -> None:
        for task in [task for task in self._tasks if task.life.stage is TaskStage.ENDED]:
            self._tasks.remove(task)
            del self._positions[task]

    def _run_mails(self) -> None:
        while not self._mails.empty():
            mail = self._mails.get()
            if mail is not None:
                mail()

    def _sleep(self) -> None:
        self._sleeping = True
        # A change before the flag was set gave no wake-up: look once more before sleeping.
        if any(self._step(task) for task in self._tasks) or self._stopping:
            self._sleeping = False
            return
        now = perf_counter()
        waits = [wait for wait in (task.seconds_until_due(now) for task in self._tasks) if wait is not None]
        timeout = min(waits, default=_IDLE_SECONDS)
        try:
            mail = self._mails.get(timeout=min(timeout, _IDLE_SECONDS)) if timeout > 0 else None
        except queue.Empty:
            mail = None
            # Waiting briefly, or for credit or input, is no idleness: a job under load does so all the time.
            if timeout >= _IDLE_SECONDS and self._garbage is not None:
                self._garbage.when_idle()
        self._sleeping = False
        if mail is not None:
            mail()
