"""CPU time of a row whose state is by window, beside that of a value table: the figures of docs/design/0021.

    python -m bench.window_tables

Prints one JSON line a backend and number of keys. The loops are those of generated code. They take turns in one
process, each counts with its best round, and chunks have 1000 rows. Times are CPU times of the thread.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable
from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup
from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.rocksdb.backend import RocksDBKeyedStateBackend
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.key_groups import KeyGroupRange

ROWS = 200_000
CHUNK = 1000
#: A window has all rows of a round.
SIZE = 1000

Row = tuple[int, int]
Run = Callable[[list[Row]], None]


def value_loop(table: ValueTable) -> Run:
    """The loop of the built-in sum."""
    live, miss = table.live, table.miss

    def run(rows: list[Row]) -> None:
        shard, count = live[0], len(live)
        several = count > 1
        if table.wants_keys:
            table.prefetch([row[0] for row in rows])
            shard = live[0]
        for row in rows:
            key: Any = row[0]
            try:
                if several:
                    shard = live[hash(key) % count]
                value = shard[key]
            except (KeyError, TypeError):
                key, shard, value = miss(key)
                value = row[1] if value is MISSING else value + row[1]
            else:
                value = value + row[1]
            shard[key] = value

    return run


def window_loop(tables: WindowTables[TimeWindow], window: TimeWindow) -> Run:
    """The same with the table of a window, which is asked for in each call."""

    def run(rows: list[Row]) -> None:
        value_loop(tables.table(window))(rows)

    return run


def stamped_loop(tables: WindowTables[TimeWindow], window: TimeWindow) -> Run:
    """The same with the comparison that tells whether a row belongs to the window at hand."""
    stamp = window.start

    def run(rows: list[Row]) -> None:
        low, high, count, several = 0, 0, 1, False
        shard: dict[Any, Any] = {}
        live: list[dict[Any, Any]] = [shard]
        table = tables.table(window)
        if table.wants_keys:
            table.prefetch([row[0] for row in rows])
        for row in rows:
            if not low <= stamp < high:
                table, low, high = tables.table(window), window.start, window.end
                live, shard, count, miss = table.live, table.live[0], len(table.live), table.miss
                several = count > 1
            key: Any = row[0]
            try:
                if several:
                    shard = live[hash(key) % count]
                value = shard[key]
            except (KeyError, TypeError):
                key, shard, value = miss(key)
                value = row[1] if value is MISSING else value + row[1]
            else:
                value = value + row[1]
            shard[key] = value

    return run


def backend_of(kind: str, folder: str) -> KeyedStateBackend:
    """A backend of all key groups."""
    clock = SystemClock()
    context = KeyedBackendContext(
        operator_name="op",
        operator_id="0" * 32,
        job_id="0" * 32,
        subtask=0,
        max_parallelism=128,
        key_groups=KeyGroupRange(0, 127),
        object_reuse=False,
        clock=clock,
        settings=Settings({"state.backend.rocksdb.memory.fixed-per-slot": "256 mb"}),
        local_directory=folder,
        metrics=OperatorMetricGroup(MetricRegistry(clock), ("op",)),
        post=lambda action: action(),
    )
    return HeapKeyedStateBackend(context) if kind == "heap" else RocksDBKeyedStateBackend(context)


def measured(kind: str, keys: int, rounds: int) -> dict[str, object]:
    """ns of CPU a row: of each loop over keys that are there already, and what opening, rows and drop cost."""
    with tempfile.TemporaryDirectory() as folder:
        backend = backend_of(kind, folder)
        tables: WindowTables[TimeWindow] = backend.window_tables("windows", Types.LONG(), TIME_WINDOWS)
        window, stamped = TimeWindow(0, SIZE), TimeWindow(SIZE, 2 * SIZE)
        loops = {
            "value_table": value_loop(backend.value_table("values", Types.LONG())),
            "window_table": window_loop(tables, window),
            "window_table_and_bounds": stamped_loop(tables, stamped),
        }
        order = random.Random(1)
        rows = [(order.randrange(keys), 1) for _ in range(ROWS)]
        chunks = [rows[start : start + CHUNK] for start in range(0, ROWS, CHUNK)]
        best = dict.fromkeys(loops, float("inf"))
        for number in range(rounds + 1):
            for name, run in loops.items():
                started = time.thread_time()
                for chunk in chunks:
                    run(chunk)
                    backend.end_of_chunk()
                if number:
                    best[name] = min(best[name], time.thread_time() - started)
        found: dict[str, object] = {"backend": kind, "keys": keys}
        found |= {name: round(seconds / ROWS * 1e9) for name, seconds in best.items()}
        listed = sum(len(each) for each, _ in tables.rows(window))
        started = time.thread_time()
        for _ in tables.rows(window):
            pass
        found["rows_ns_a_row"] = round((time.thread_time() - started) / listed * 1e9)
        started = time.thread_time()
        tables.drop(window)
        found["drop_us"] = round((time.thread_time() - started) * 1e6)
        backend.dispose()
        return found


def main() -> None:
    """Prints the figures."""
    cases = (("heap", 1000, 15), ("heap", 100_000, 15), ("rocksdb", 1000, 9), ("rocksdb", 100_000, 5))
    for kind, keys, rounds in cases:
        print(json.dumps(measured(kind, keys, rounds)), flush=True)


if __name__ == "__main__":
    main()
