"""What a stage has left, as a bounded stream and as one that is broadcast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.batch_runner import run_batch
from tests.unit.runtime.graph.programs import environment
from yarrow.batch import StageTable, read_result
from yarrow.common.typeinfo import Types
from yarrow.datastream import BroadcastProcessFunction
from yarrow.datastream.state import MapStateDescriptor
from yarrow.runtime.common.errors import InvalidProgramError

NAMES: MapStateDescriptor[str, str] = MapStateDescriptor("names", Types.STRING(), Types.STRING())


@pytest.fixture
def table(tmp_path: Path) -> StageTable:
    folder = tmp_path / "carriers"
    folder.mkdir()
    for part, rows in enumerate(([("AA", "American"), ("UA", "United")], [("B6", "JetBlue")])):
        columns = {"code": [row[0] for row in rows], "name": [row[1] for row in rows]}
        pq.write_table(pa.table(columns), folder / f"part-{part}.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".part-9.parquet.crc").write_bytes(b"no table")
    return StageTable("carriers", "code string, name string", path=str(folder))


def test_the_rows_of_a_result_are_a_bounded_stream(table: StageTable) -> None:
    env = environment()
    names = read_result(env, table).map(lambda row: f"{row.code}={row.name}", Types.STRING())
    names.print()
    printed = run_batch(env.get_job_graph()).printed.splitlines()
    assert sorted(line.rpartition("> ")[2] for line in printed) == [
        "AA=American",
        "B6=JetBlue",
        "UA=United",
    ]


class Named(BroadcastProcessFunction[str, Any, str]):
    """Gives the name of each code."""

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        yield f"{value} is {ctx.get_broadcast_state(NAMES).get(value)}"

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(NAMES).put(value.code, value.name)


def test_a_result_is_broadcast(table: StageTable) -> None:
    env = environment()
    codes = env.from_collection(["UA", "B6", "XX"], Types.STRING())
    names = read_result(env, table).map(
        lambda row: row, Types.ROW_NAMED(["code", "name"], [Types.STRING()] * 2)
    )
    codes.connect(names.broadcast(NAMES)).process(Named(), Types.STRING()).print()
    printed = run_batch(env.get_job_graph()).printed.splitlines()
    assert sorted(line.rpartition("> ")[2] for line in printed) == [
        "B6 is JetBlue",
        "UA is United",
        "XX is None",
    ]


def test_a_result_that_is_not_there_is_named(table: StageTable, tmp_path: Path) -> None:
    nowhere = StageTable("t", "id int", path=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidProgramError, match="nowhere does not exist"):
        read_result(environment(), nowhere)
    with pytest.raises(InvalidProgramError, match="'t' is temporary"):
        read_result(environment(), StageTable("t", "id int"))
    with pytest.raises(InvalidProgramError, match="takes the StageTable"):
        read_result(environment(), "/data/t")  # type: ignore[arg-type]
    other = StageTable("carriers", "code string, country string", path=table.path)
    with pytest.raises(InvalidProgramError, match=r"no column 'country'.*'carriers' declares.*code, name"):
        read_result(environment(), other)
