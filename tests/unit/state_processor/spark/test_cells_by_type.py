"""Values as cells of a column whose type the reader gives: exactly, or refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.spark.cells_by_type import cells

_FINE = dt.datetime(2024, 5, 6, 7, 8, 9, 10)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.7, pa.int32()),
        (-2.9, pa.int64()),
        (np.float64(1.5), pa.int64()),
        (Decimal("1.5"), pa.int64()),
        (float("nan"), pa.int64()),
        (2**40, pa.int32()),
        (1.7, pa.bool_()),
        (2, pa.bool_()),
        ("x", pa.bool_()),
        (_FINE, pa.timestamp("s")),
        (_FINE, pa.timestamp("ms")),
        (_FINE, pa.date32()),
        (_FINE.time(), pa.time32("s")),
        (dt.timedelta(microseconds=5), pa.duration("s")),
        (5, pa.binary()),
        (2**62, pa.binary()),
        (True, pa.large_binary()),
        ("x", pa.decimal128(5, 1)),
    ],
    ids=str,
)
def test_what_a_column_does_not_hold_is_refused_at_any_depth(value: Any, kind: pa.DataType) -> None:
    columns = [
        (value, kind),
        ([value], pa.list_(kind)),
        ({"a": value}, pa.map_(pa.string(), kind)),
        ((value,), pa.struct([("a", kind)])),
    ]
    for content, column in columns:
        with pytest.raises(StateProcessorError, match=r"^state 's': its values do not fit a column of"):
            cells([None, content], column, "state 's'")


@pytest.mark.parametrize(
    ("value", "kind", "cell"),
    [
        (2.0, pa.int64(), 2),
        (np.int16(3), pa.int64(), 3),
        (7, pa.int8(), 7),
        (2**63, pa.uint64(), 2**63),
        (Decimal(4), pa.int32(), 4),
        (1, pa.bool_(), True),
        (0.0, pa.bool_(), False),
        (np.bool_(True), pa.bool_(), True),
        (True, pa.bool_(), True),
        (5, pa.float64(), 5.0),
        (bytearray(b"ab"), pa.binary(), b"ab"),
        ("1.50", pa.decimal128(5, 2), Decimal("1.50")),
        (_FINE, pa.timestamp("us"), _FINE),
        (_FINE.replace(microsecond=0), pa.timestamp("s"), _FINE.replace(microsecond=0)),
        (_FINE.date(), pa.date32(), _FINE.date()),
        (dt.datetime(2024, 5, 6), pa.date32(), dt.date(2024, 5, 6)),
        (dt.time(12, 30), pa.string(), "12:30:00"),
        (Decimal("1E+40"), pa.string(), "1E+40"),
    ],
    ids=str,
)
def test_what_a_column_holds_is_the_same_at_any_depth(value: Any, kind: pa.DataType, cell: Any) -> None:
    assert cells([None, value], kind, "s").to_pylist() == [None, cell]
    assert cells([None, [value, None]], pa.list_(kind), "s").to_pylist() == [None, [cell, None]]
    struct = pa.struct([("a", kind)])
    assert cells([(value,), None], struct, "s").to_pylist() == [{"a": cell}, None]


def test_numbers_of_several_types_are_one_column() -> None:
    assert cells([1, 2.0, None, True], pa.float64(), "s").to_pylist() == [1.0, 2.0, None, 1.0]
    assert cells([1, 2.0, None], pa.int64(), "s").to_pylist() == [1, 2, None]
    assert cells([], pa.int64(), "s").to_pylist() == []
