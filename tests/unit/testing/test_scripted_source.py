"""A scripted source brings its rows, waits at gates, and crashes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.testing import CheckpointGate, Crash, Gate, InjectedCrashError, ScriptedSource
from yarrow.testing.scripted_source import ScriptReader, ScriptSplit


class Context:
    """The engine, as far as a reader asks for it."""

    def request_split(self) -> None:
        return None


def reader(source: ScriptedSource, position: int = 0) -> ScriptReader:
    context: Any = Context()
    made = source.create_reader(context)
    made.add_splits([ScriptSplit(position)])
    made.notify_no_more_splits()
    return made


def rows_of(made: ScriptReader, most: int = 100) -> list[Any]:
    """The rows that come until the reader has nothing, or has ended."""
    found: list[Any] = []
    while isinstance(records := made.poll(most), SourceRecords):
        found += records.rows
    return found


def test_a_gate_is_told_and_opened(tmp_path: Path) -> None:
    source = ScriptedSource([1, 2, Gate("half"), 3], tmp_path / "script")
    made = reader(source)
    assert not source.has_reached("half")
    assert rows_of(made, most=1) == [1, 2]
    assert isinstance(made.poll(10), NothingAvailable)
    assert source.has_reached("half")
    source.open_gate("half")
    assert rows_of(made) == [3]
    assert made.poll(10) is None


def test_a_crash_comes_once(tmp_path: Path) -> None:
    source = ScriptedSource([1, Crash("once"), 2], tmp_path / "script")
    made = reader(source)
    assert made.poll(10).rows == [1]  # type: ignore[union-attr]
    with pytest.raises(InjectedCrashError, match="once"):
        made.poll(10)
    assert source.has_reached("once")
    assert rows_of(reader(source)) == [1, 2]


def test_a_checkpoint_gate_waits_for_a_checkpoint_behind_the_rows_before(tmp_path: Path) -> None:
    source = ScriptedSource([1, CheckpointGate(), 2], tmp_path)
    made = reader(source)
    made.snapshot_state(1)
    assert rows_of(made) == [1]
    made.notify_checkpoint_complete(1)
    assert rows_of(made) == [], "checkpoint 1 does not have row 1"
    splits = made.snapshot_state(2)
    made.notify_checkpoint_complete(2)
    assert rows_of(made) == [2]
    (split,) = splits
    assert rows_of(reader(source, split.next)) == [2], "a restored source has passed the gate"
