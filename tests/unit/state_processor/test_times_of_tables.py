"""Columns of nanoseconds become Python's own times, with pandas and without it, and never lose any."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from yarrow.common.typeinfo import Types
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.state_processor import OperatorTransformation, SavepointReader, SavepointWriter
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.table_cells import access_times_of, keys_of, rows_of, values_of

MICROS = 1_000_000_001
AT, TOOK = datetime(1970, 1, 1, 0, 16, 40, 1), timedelta(seconds=1000, microseconds=1)
STAMPS = pa.array([MICROS * 1000, None], pa.timestamp("ns"))


@pytest.fixture(autouse=True, params=["installed", "missing"])
def pandas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "missing":
        monkeypatch.setitem(sys.modules, "pandas", None)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (STAMPS, AT),
        (STAMPS.cast(pa.timestamp("ns", "UTC")), AT.replace(tzinfo=ZoneInfo("UTC"))),
        (STAMPS.view(pa.duration("ns")), TOOK),
        (STAMPS.dictionary_encode(), AT),
    ],
    ids=str,
)
def test_values_and_keys_are_times_of_python(column: Any, expected: Any) -> None:
    nested = [
        (column, expected),
        (pa.StructArray.from_arrays([column], names=["at"]), {"at": expected}),
        (pa.ListArray.from_arrays([0, 1, 2], column), [expected]),
        (pa.FixedSizeListArray.from_arrays(column, 1), [expected]),
        (pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), column), {"k": expected}),
    ]
    for cells, wanted in nested:
        for whole in (cells, pa.chunked_array([cells])):
            found = values_of(whole, None, None, "state 'x'")[0]
            assert repr(found) == repr(wanted)
    assert repr(keys_of(column, "state 'x'")) == repr([expected, None])
    (row, _) = rows_of(pa.table({"at": column}))
    assert repr(row["at"]) == repr(expected)


def test_times_of_access_are_read_of_nanoseconds_too() -> None:
    stamps = STAMPS.cast(pa.timestamp("ns", "UTC"))
    assert access_times_of(stamps, StateKind.VALUE, None) == [MICROS // 1000, None]
    by_key = pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), stamps)
    assert access_times_of(by_key, StateKind.MAP, None)[0] == {"k": MICROS // 1000}


def test_what_would_be_lost_is_refused_by_name() -> None:
    column = pa.array([MICROS], pa.timestamp("ns"))
    for read in (
        partial(values_of, column, None, None, "operator 'o', state 'x'"),
        partial(keys_of, column, "operator 'o', state 'x'"),
    ):
        with pytest.raises(StateProcessorError, match=r"'o', state 'x': .*timestamp\[ns\].*round_temporal"):
            read()
    with pytest.raises(StateProcessorError, match=r"column 'at'.*timestamp\[ns\]"):
        rows_of(pa.table({"at": column}))


def test_state_of_a_table_with_nanoseconds_is_written_and_read(tmp_path: Path) -> None:
    descriptor: ValueStateDescriptor[Any] = ValueStateDescriptor("last", Types.SQL_TIMESTAMP())
    table = pa.table({"key": STAMPS.slice(0, 1), "last": STAMPS.slice(0, 1)})
    made = OperatorTransformation.bootstrap_with(table).key_by("key").to_state(descriptor, "last")
    path = SavepointWriter.new_savepoint(16).with_operator("op", made).write(f"{tmp_path}/made")
    with SavepointReader.read(path) as reader:
        assert reader.read_keyed_state("op", "last").to_pylist() == [{"key": AT, "value": AT}]
