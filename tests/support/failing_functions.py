"""Functions that fail at a chosen place, for tests of what a restart makes of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from yarrow.datastream import CheckpointListener, MapFunction, RuntimeContext


class FailsOnceBehindACheckpoint(MapFunction, CheckpointListener):  # type: ignore[type-arg]
    """Fails the job at the first row behind a complete checkpoint, in all attempts together once."""

    def __init__(self, mark: Path, seconds_a_row: float = 0.001) -> None:
        """`seconds_a_row`: what each row takes until then, so that a checkpoint is complete before the input ends."""
        self._mark = mark
        self._seconds = seconds_a_row
        self._complete = False

    def open(self, runtime_context: RuntimeContext) -> None:
        self._pause = threading.Event()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._complete = True

    def map(self, value: Any) -> Any:
        if not self._mark.exists():
            if self._complete:
                self._mark.touch()
                raise ValueError("a row behind a checkpoint fails once")
            self._pause.wait(self._seconds)
        return value
