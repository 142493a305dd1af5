"""ScriptedSource: rows in order, with marks between them at which the source waits for the test, or crashes.

Owner: the reader on its task's thread; the test's process talks to it by files of a folder that both see. The source
replays from its position after a restore. Must not be used where the folder is on another machine.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator, unassigned_or

#: Seconds between two looks at the folder.
_LOOK_SECONDS = 0.01


class InjectedCrashError(Exception):
    """The crash that a script asked for."""


@dataclass(frozen=True)
class Gate:
    """The source waits here until the test opens the gate."""

    name: str


@dataclass(frozen=True)
class CheckpointGate:
    """The source waits here until a checkpoint is complete that has all rows before the gate, and none behind it."""


@dataclass(frozen=True)
class Crash:
    """The source crashes here, once in the life of its folder."""

    name: str
    #: The whole worker is killed, as by a lack of memory; False = the source raises InjectedCrashError.
    kill_worker: bool = False


_MARKS = (Gate, CheckpointGate, Crash)


@dataclass(frozen=True, slots=True)
class ScriptSplit(SourceSplit):
    """The script from position `next` on."""

    next: int = 0

    @property
    def split_id(self) -> str:
        return "script"


class ScriptedSource(Source[Any, ScriptSplit]):
    """A source of the rows of a script, through one reader: give the operator parallelism 1.

    `script` holds rows, and marks between them: Gate, CheckpointGate and Crash. Rows must pickle. `folder` belongs to
    this source alone.
    """

    def __init__(self, script: Iterable[Any], folder: str | os.PathLike[str]) -> None:
        self._script = pickle.dumps(list(script), protocol=5)
        self._folder = os.fspath(folder)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def open_gate(self, name: str) -> None:
        """Lets the source pass the gate of that name, now or when it comes there."""
        _touch(self._file(name, "open"))

    def has_reached(self, name: str) -> bool:
        """Whether the source has come to the gate or the crash of that name."""
        return self._file(name, "reached").exists()

    def create_enumerator(
        self, context: SplitEnumeratorContext[ScriptSplit], checkpoint: Any = None
    ) -> OnRequestEnumerator[ScriptSplit]:
        """Return an enumerator of one split, for the first reader that asks."""
        return OnRequestEnumerator(context, unassigned_or(checkpoint, [ScriptSplit()]))

    def create_reader(self, context: SourceReaderContext) -> ScriptReader:
        """A reader at the beginning of the script, or at a restored position."""
        return ScriptReader(context, pickle.loads(self._script), self)

    def _file(self, name: str, what: str) -> Path:
        return Path(self._folder) / f"{name}.{what}"

    def passes(self, gate: Gate) -> bool:
        """Notes that the source has come to a gate; whether the gate is open."""
        _touch(self._file(gate.name, "reached"))
        return self._file(gate.name, "open").exists()

    def crash(self, crash: Crash) -> None:
        """Crashes, unless it has done so before. Raises InjectedCrashError."""
        reached = self._file(crash.name, "reached")
        reached.parent.mkdir(parents=True, exist_ok=True)
        try:
            reached.touch(exist_ok=False)
        except FileExistsError:
            return
        if crash.kill_worker:
            os.kill(os.getpid(), signal.SIGKILL)
        raise InjectedCrashError(f"the script crashes at {crash.name!r}")


class ScriptReader(OneByOneReader[Any, ScriptSplit]):
    """Hands out the rows up to the next mark."""

    _split: ScriptSplit

    def __init__(self, context: SourceReaderContext, script: list[Any], source: ScriptedSource) -> None:
        super().__init__(context)
        self._script = script
        self._source = source
        #: The checkpoint at each position from which none has been complete.
        self._checkpoints: dict[int, int] = {}
        #: The position of a complete checkpoint.
        self._complete_at = -1

    def open_split(self, split: ScriptSplit) -> None:
        self._split = split
        # A restored position is that of a complete checkpoint.
        self._complete_at = split.next if split.next else -1

    def read_split(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        script, at = self._script, self._split.next
        while at < len(script) and isinstance(mark := script[at], _MARKS):
            if not self._passes(mark):
                return NothingAvailable(_LOOK_SECONDS)
            at += 1
            self._split = replace(self._split, next=at)
        rows: list[Any] = []
        while len(rows) < max_rows and at < len(script) and not isinstance(script[at], _MARKS):
            rows.append(script[at])
            at += 1
        if not rows:
            return None
        self._split = replace(self._split, next=at)
        return SourceRecords(rows, split_id=self._split.split_id)

    def _passes(self, mark: Gate | CheckpointGate | Crash) -> bool:
        if isinstance(mark, Crash):
            self._source.crash(mark)
            return True
        if isinstance(mark, Gate):
            return self._source.passes(mark)
        return self._complete_at >= self._split.next

    def current_split(self) -> ScriptSplit:
        return self._split

    def snapshot_state(self, checkpoint_id: int) -> list[ScriptSplit]:
        """The position."""
        if self._has_open_split:
            self._checkpoints[checkpoint_id] = self._split.next
        return super().snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A gate that waits for the checkpoint opens."""
        self._complete_at = max(self._complete_at, self._checkpoints.pop(checkpoint_id, -1))
        super().notify_checkpoint_complete(checkpoint_id)


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
