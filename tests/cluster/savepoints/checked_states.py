"""What a savepoint of the job in all_kinds must hold, read as tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.cluster.savepoints.all_kinds import END, best_of, by_key, rows_until, splits_of
from yarrow.state_processor import SavepointReader


def column_by_key(table: pa.Table, column: str = "value") -> dict[Any, Any]:
    """A column of a keyed state by key."""
    keys = table.column("key").to_pylist()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, table.column(column).to_pylist(), strict=True))


def check_states(path: str, limit: int, due: int, *, fired: bool = False) -> None:
    """Compares every state of kind `kinds` and `lists` with the rows that have passed."""
    rows = by_key(limit)
    with SavepointReader.read(path) as reader:

        def keyed(name: str) -> dict[Any, Any]:
            return column_by_key(reader.read_keyed_state("kinds", name))

        counts = {key: len(own) for key, own in rows.items()}
        sums = {key: sum(row[3] for row in own) for key, own in rows.items()}
        identities = {key: sorted(row[2] for row in own) for key, own in rows.items()}
        assert keyed("count") == counts
        assert keyed("recent") == counts
        assert keyed("sum") == sums
        assert keyed("mean") == {key: {"f0": sums[key], "f1": counts[key]} for key in rows}
        assert keyed("total") == {key: {"rows": counts[key], "value": sums[key]} for key in rows}
        assert {key: sorted(each) for key, each in keyed("identities").items()} == identities
        assert {key: sorted(each) for key, each in keyed("recent identities").items()} == identities
        assert {key: dict(each) for key, each in keyed("by split").items()} == {
            key: dict(splits_of(own)) for key, own in rows.items()
        }
        assert {key: set(dict(each)) for key, each in keyed("recent by split").items()} == {
            key: set(splits_of(own)) for key, own in rows.items()
        }
        best = {key: best_of(own) for key, own in rows.items()}
        assert keyed("best") == {key: {"identity": i, "value": v} for key, (i, v) in best.items()}
        stamps = column_by_key(reader.read_keyed_state("kinds", "recent"), "access_time")
        assert all(stamp is not None for stamp in stamps.values())
        timers = reader.read_timers("kinds").to_pylist()
        at_end = [t["key"] for t in timers if t["domain"] == "EVENT_TIME" and t["timestamp"] == END]
        assert sorted(at_end) == sorted(rows)
        processing = [(t["key"], t["timestamp"]) for t in timers if t["domain"] == "PROCESSING_TIME"]
        assert sorted(processing) == ([] if fired else [(key, due) for key in sorted(rows)])
        seen = sorted(row[2] for row in rows_until(limit))
        assert sorted(reader.read_list_state("lists", "seen").column("value").to_pylist()) == seen
        assert sorted(reader.read_union_state("lists", "all seen").column("value").to_pylist()) == seen
        rules = reader.read_broadcast_state("rules", "rules")
        assert column_by_key(rules) == {number: number * 100 for number in range(min(limit, 7))}
