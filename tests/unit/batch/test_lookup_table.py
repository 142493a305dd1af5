"""Lookup tables: whole versions, refreshed; what is missing or cannot be read keeps the old one, and says so."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.embedded.waiting import wait_until
from yarrow.batch import LookupTable, LookupTableError, Schedule, StageTable, TableFormat
from yarrow.batch.lookup_version import read_version
from yarrow.common.types import Row
from yarrow.datastream import MapFunction, RuntimeContext
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.testing.operator_harness import OperatorHarness

DAILY = Schedule.of_cron("0 3 * * *")


def leave(folder: Path, version: int, keys: int = 4, files: int = 2) -> None:
    """Leaves a table as a stage does that replaces its output: written beside, then moved into place."""
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    new.mkdir()
    for part in range(files):
        numbers = list(range(part, keys, files))
        table = pa.table({"id": numbers, "name": [f"name {number}" for number in numbers]})
        table = table.append_column("version", pa.array([version] * len(numbers), pa.int64()))
        pq.write_table(table, new / f"part-{part}-{version}.parquet")
    (new / "_SUCCESS").touch()
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def leave_no_text(folder: Path) -> None:
    """Leaves a table whose key is called a text, and is none."""
    shutil.rmtree(folder)
    folder.mkdir()
    keys = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"id": keys}), folder / "part-0.parquet")


class Gauges:
    """A group of metrics, and the context of a function that has it."""

    def __init__(self) -> None:
        self.of_group: dict[str, Callable[[], int | float]] = {}
        self.groups: list[str] = []

    def get_metrics_group(self) -> Gauges:
        return self

    def add_group(self, name: str, extra: str) -> Gauges:
        self.groups += [name, extra]
        return self

    def gauge(self, name: str, obj: Callable[[], int | float]) -> None:
        self.of_group[name] = obj

    def __getitem__(self, name: str) -> int | float:
        return self.of_group[name]()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    leave(tmp_path / "carriers", 1)
    return tmp_path / "carriers"


@pytest.fixture
def gauges() -> Gauges:
    return Gauges()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def table(folder: Path, gauges: Gauges, clock: ManualClock) -> Iterator[LookupTable]:
    made = LookupTable(str(folder), "id", DAILY, clock)
    made.open(cast(RuntimeContext, gauges))
    yield made
    made.close()


def test_rows_are_found_by_their_key(table: LookupTable) -> None:
    assert table.get(2) == Row(id=2, name="name 2", version=1)
    assert table.get(9) is None
    assert len(table.version) == 4


def test_a_key_may_have_several_columns(folder: Path, gauges: Gauges) -> None:
    made = LookupTable(str(folder), ("id", "version"), DAILY)
    made.open(cast(RuntimeContext, gauges))
    assert made.get((3, 1)) == Row(id=3, name="name 3", version=1)
    assert made.get((3, 2)) is None
    made.close()


def test_a_refresh_takes_the_new_version_whole(table: LookupTable, folder: Path, gauges: Gauges) -> None:
    former = table.version
    assert not table.refresh()
    assert table.version is former
    leave(folder, 2, keys=6)
    assert table.refresh()
    assert (table.get(5), former.get(5)) == (Row(id=5, name="name 5", version=2), None)
    assert (gauges["versions"], gauges["rows"]) == (2, 6)


def test_memory_and_staleness_are_metrics(
    table: LookupTable, folder: Path, gauges: Gauges, clock: ManualClock
) -> None:
    assert gauges.groups == ["lookup", "carriers"]
    small = gauges["memoryBytes"]
    leave(folder, 2, keys=10_000)
    clock.advance(90)
    assert gauges["stalenessMs"] == 90_000
    table.refresh()
    assert gauges["stalenessMs"] == 0
    # An id and a version of eight bytes, a name of more, and the index.
    assert gauges["memoryBytes"] > small + 10_000 * 24


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "there is no folder"),
        (lambda folder: [path.unlink() for path in folder.glob("*.parquet")], "has no files"),
        (lambda folder: (folder / "part-9.parquet").write_bytes(b"PAR1 half"), "cannot be read as Parquet"),
        (
            lambda folder: pq.write_table(pa.table({"id": [0], "name": ["x"]}), folder / "part-9.parquet"),
            "different columns",
        ),
        (
            lambda folder: pq.write_table(
                pa.table({"id": [0], "name": ["again"], "version": [1]}), folder / "part-9.parquet"
            ),
            "two rows of the key 0",
        ),
        (lambda folder: leave_no_text(folder), "can't decode"),
    ],
)
def test_a_version_that_cannot_be_read_keeps_the_old_one_and_warns(
    damage: Callable[[Path], Any],
    message: str,
    table: LookupTable,
    folder: Path,
    gauges: Gauges,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(folder)
    clock.advance(60)
    assert not table.refresh()
    assert table.get(1) == Row(id=1, name="name 1", version=1)
    assert (gauges["failedRefreshes"], gauges["versions"], gauges["stalenessMs"]) == (1, 1, 60_000)
    (record,) = caplog.records
    assert "keeps its version, which is 60 s old" in record.message and message in record.message
    shutil.rmtree(folder, ignore_errors=True)
    leave(folder, 3)
    assert table.refresh()
    assert table.get(1) == Row(id=1, name="name 1", version=3)


def test_a_folder_that_changes_while_it_is_read_gives_no_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = pq.read_table

    def meanwhile(change: Callable[[], object]) -> None:
        def reading(stream: Any) -> pa.Table:
            change()
            return read(stream)

        monkeypatch.setattr(pq, "read_table", reading)

    more = pa.table({"id": [9], "name": ["more"], "version": [1]})
    meanwhile(lambda: pq.write_table(more, folder / "part-9.parquet"))
    with pytest.raises(LookupTableError, match="has changed while it was read"):
        read_version(str(folder), ["id"])
    meanwhile(lambda: leave(folder, 2))
    with pytest.raises(LookupTableError, match=r"part-1-1\.parquet cannot be read"):
        read_version(str(folder), ["id"])


def test_nobody_sees_a_part_of_a_version(table: LookupTable, folder: Path) -> None:
    ended = threading.Event()
    mixed: list[set[int]] = []

    def look() -> None:
        while not ended.is_set():
            version = table.version
            seen = {row["version"] for key in range(4) if (row := version.get(key)) is not None}
            if len(seen) != 1:
                mixed.append(seen)

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(2, 16):
        leave(folder, number)
        assert table.refresh()
    ended.set()
    thread.join()
    assert mixed == []


def test_a_function_begins_with_a_whole_table_or_not_at_all(tmp_path: Path, gauges: Gauges) -> None:
    made = LookupTable(str(tmp_path / "nothing"), "id", DAILY)
    with pytest.raises(LookupTableError, match=r"no folder .*nothing: the stage that leaves it has not run"):
        made.open(cast(RuntimeContext, gauges))
    with pytest.raises(LookupTableError, match="is not open: call its open"):
        made.get(1)
    leave(tmp_path / "carriers", 1)
    wrong = LookupTable(str(tmp_path / "carriers"), "code", DAILY)
    with pytest.raises(LookupTableError, match=r"no column 'code'.*it has id, name, version"):
        wrong.open(cast(RuntimeContext, gauges))


PARQUET = StageTable("carriers", "id bigint", path="/data/carriers")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LookupTable("", "id", DAILY), "not an empty text"),
        (lambda: LookupTable(7, "id", DAILY), "takes a StageTable or the path"),  # type: ignore[arg-type]
        (lambda: LookupTable(StageTable("t", "id bigint"), "id", DAILY), "'t' is temporary"),
        (lambda: LookupTable(StageTable("t", "id int", path="/d/{day}"), "id", DAILY), "names a parameter"),
        (
            lambda: LookupTable(StageTable("t", "id int", path="/d", format=TableFormat.CSV), "id", DAILY),
            "'t' is csv: leave it as Parquet",
        ),
        (
            lambda: LookupTable(
                StageTable("t", "id int, day date", path="/d", partition_by=("day",)), "id", DAILY
            ),
            "partitioned by day",
        ),
        (lambda: LookupTable(PARQUET, (), DAILY), "names no key columns"),
        (lambda: LookupTable(PARQUET, "id", "10 min"), "expected a Schedule"),  # type: ignore[arg-type]
    ],
)
def test_bad_declarations_are_refused_on_the_client(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        make()


def test_an_open_table_travels_as_its_declaration(table: LookupTable) -> None:
    copy = pickle.loads(pickle.dumps(table))
    with pytest.raises(LookupTableError, match="is not open"):
        copy.get(1)


class Named(MapFunction[int, Any]):
    """Adds the name and the version of an id."""

    def __init__(self, path: str) -> None:
        self._table = LookupTable(path, "id", Schedule.every("1 s"))

    def open(self, runtime_context: RuntimeContext) -> None:
        self._table.open(runtime_context)

    def map(self, value: int) -> tuple[str, int] | None:
        row = self._table.get(value)
        return None if row is None else (row["name"], row["version"])

    def close(self) -> None:
        self._table.close()


def test_a_running_stream_gets_the_next_version_at_its_time(folder: Path) -> None:
    with OperatorHarness(lambda ids: ids.map(Named(str(folder)))) as harness:

        def looked_up(number: int) -> Any:
            harness.push(number)
            harness.run()
            return harness.take()[-1]

        assert looked_up(1) == ("name 1", 1)
        leave(folder, 2)
        wait_until(lambda: looked_up(1) == ("name 1", 2))
        shown = {name.rpartition("lookup.")[2]: value for name, value in harness.metrics().items()}
        assert (shown["carriers.rows"], shown["carriers.versions"]) == (4, 2)
        assert shown["carriers.memoryBytes"] > 0 and shown["carriers.stalenessMs"] >= 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lookup ")]
