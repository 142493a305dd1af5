"""Windows on the heap while snapshots are under way: each snapshot has them as they were at its cut."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.container.state.frozen_windows import FrozenWindows
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.window_tables import TIME_WINDOWS, HeapWindowTables
from yarrow.datastream.window_types import TimeWindow

WINDOW = TimeWindow(0, 10)


def filled(table: HeapTable, value_of: Any) -> HeapWindowTables[TimeWindow]:
    tables = HeapWindowTables(TIME_WINDOWS, table)
    written = tables.table(WINDOW)
    for key in range(3):
        at, content, _ = written.miss(key)
        content[at] = value_of(key)
    tables.end_of_chunk()
    return tables


def content(frozen: FrozenWindows[TimeWindow]) -> dict[Any, Any]:
    """What a snapshot writes."""
    found: dict[Any, Any] = {}
    for _, keys, values in frozen.copies():
        found.update(zip(keys, values, strict=True))
    for _, _, _, shard in frozen.shards():
        for keys, values in shard.pieces(9):
            found.update(zip(keys, values, strict=True))
    return found


def test_a_newer_snapshot_that_is_written_first_has_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = filled(HeapTable(None, True), lambda key: key)
    older, newer = tables.cut(1), tables.cut(2)
    written: dict[Any, Any] = {}
    real = HeapTable.cut

    def cut(table: HeapTable, number: int) -> Any:
        shards = real(table, number)
        if number == 1:
            # What the thread of the newer snapshot may do at this moment.
            for _, keys, values in newer.copies():
                written.update(zip(keys, values, strict=True))
        return shards

    monkeypatch.setattr(HeapTable, "cut", cut)
    tables.table(WINDOW)
    written.update(content(newer))
    assert written == content(older) == {0: 0, 1: 1, 2: 2}


def test_values_that_were_handed_out_may_change_without_the_snapshot() -> None:
    tables = filled(HeapTable(lambda value: dict(value), False), lambda key: {"n": key})
    frozen = tables.cut(1)
    for _, values in tables.rows(WINDOW):
        for value in values:
            value["n"] += 100
    tables.drop(WINDOW)
    assert content(frozen) == {0: {"n": 0}, 1: {"n": 1}, 2: {"n": 2}}
    assert list(tables.rows(WINDOW)) == []
