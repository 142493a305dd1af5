"""A savepoint of a time when Rows of `Types.ROW` had no names: Rows that bear f0, f1, ... find their state in it.

`python -m tests.format.test_rows_version_1 FOLDER` wrote it, before such Rows bore names; never write it again.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from yarrow.common import Row, Types
from yarrow.datastream import DataStream, KeyedProcessFunction, KeySelector, RuntimeContext
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from yarrow.state_processor import SavepointEnvironment

FOLDER = Path(__file__).parent / "rows-version-1"
PAIR = Types.ROW([Types.STRING(), Types.INT()])
NAMED = Types.ROW_NAMED(["f0", "f1"], [Types.STRING(), Types.INT()])
ROWS = [("a", 1), ("b", 2), ("a", 1), ("ä", -3)]
COUNT: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())
LAST: ValueStateDescriptor[Row] = ValueStateDescriptor("last", PAIR)
PLAIN: ValueStateDescriptor[Any] = ValueStateDescriptor("plain")
SEEN: ListStateDescriptor[Row] = ListStateDescriptor("seen", PAIR)
BY_ROW: MapStateDescriptor[Row, int] = MapStateDescriptor("by row", PAIR, Types.LONG())


class Keep(KeyedProcessFunction[Any, Any, Any]):
    """Counts the rows of a key in states of every kind, and tells what it had counted before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(COUNT)
        self._last = runtime_context.get_state(LAST)
        self._plain = runtime_context.get_state(PLAIN)
        self._seen = runtime_context.get_list_state(SEEN)
        self._by_row = runtime_context.get_map_state(BY_ROW)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        count = self._count.value() or 0
        row = Row(value[0], value[1])
        counted = self._by_row.get(row) if self._by_row.contains(row) else 0
        yield (value[0], count, counted, self._last.value(), self._plain.value(), list(self._seen.get()))
        self._count.update(count + 1)
        self._last.update(row)
        self._plain.update(row)
        self._seen.add(row)
        self._by_row.put(row, count + 1)


class Whole(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return value


class Made(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return Row(value[0], value[1])


class ExplicitlyNamed(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return Row(f0=value[0], f1=value[1])


def fragment(rows: DataStream) -> DataStream:
    whole = rows.key_by(Whole()).process(Keep()).uid("whole")
    made = rows.key_by(Made(), PAIR).process(Keep()).uid("made")
    named = rows.key_by(ExplicitlyNamed(), NAMED).process(Keep()).uid("named")
    return whole.union(made, named)


def write(path: str) -> None:
    with SavepointEnvironment(fragment, types=[PAIR], max_parallelism=16) as running:
        running.push([Row(*row) for row in ROWS])
        running.write(path)


@pytest.fixture
def golden(tmp_path: Path) -> str:
    shutil.copytree(FOLDER, tmp_path / "golden")
    return str(tmp_path / "golden")


def counted(rows: list[Any]) -> list[Any]:
    """What `Keep` tells of each key, three operators after each other."""
    return sorted(rows, key=lambda told: told[0])


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_rows_with_names_find_what_rows_without_had_stored(golden: str, tmp_path: Path, backend: str) -> None:
    settings = {"state.backend.type": backend}
    with SavepointEnvironment(fragment, golden, types=[PAIR], configuration=settings) as running:
        running.push([Row("a", 1), Row("b", 2), Row("c", 4)])
        a, b = Row("a", 1), Row("b", 2)
        told = counted(running.take())
        assert told == [
            *[("a", 2, 2, a, a, [a, a])] * 3,
            *[("b", 1, 1, b, b, [b])] * 3,
            *[("c", 0, 0, None, None, [])] * 3,
        ]
        assert {row[3].f0 for row in told[:6]} == {"a", "b"}
        running.write(str(tmp_path / "again"))
    # What is written now is read as well, by Rows of either kind.
    with SavepointEnvironment(fragment, str(tmp_path / "again"), configuration=settings) as running:
        running.push([Row("a", 1)])
        assert running.take() == [("a", 3, 3, a, a, [a, a, a])] * 3


if __name__ == "__main__":
    write(sys.argv[1])
