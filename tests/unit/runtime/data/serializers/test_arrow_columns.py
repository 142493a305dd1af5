"""Columns of Arrow are written as their rows are, byte for byte, and read as what was written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import Types
from yarrow.common.typeinfo import BasicTypeInfo
from yarrow.runtime.data.arrow_types import arrow_type
from yarrow.runtime.data.serializers.arrow_columns import dump_column, has_columns, load_column
from yarrow.runtime.data.serializers.serializers import serializer_for


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    Types.BYTE(): whole(8),
    Types.SHORT(): whole(16),
    Types.INT(): whole(32),
    Types.LONG(): whole(64),
    Types.FLOAT(): st.floats(width=32),
    Types.DOUBLE(): st.floats(),
    Types.BOOLEAN(): st.booleans(),
    Types.STRING(): st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
}
TYPES = [pytest.param(declared, id=str(declared)) for declared in VALUES]


@pytest.mark.slow
@pytest.mark.parametrize("declared", TYPES)
@given(data=st.data())
def test_the_bytes_are_those_of_the_rows(declared: BasicTypeInfo, data: Any) -> None:
    values = data.draw(st.lists(VALUES[declared], min_size=1, max_size=20))
    column = pa.array(values, arrow_type(declared, "", {}))
    before = data.draw(st.integers(0, len(values) - 1))
    rows = serializer_for(declared).dump_rows(column.to_pylist()[before:])
    found = dump_column(declared, column[before:])
    if declared == Types.STRING() and any("\0" in text for text in values[before:]):
        assert found is None, "its lengths stand beside it"
        assert load_column(declared, rows) is None
        return
    assert found == rows
    loaded = load_column(declared, memoryview(b"x" + rows)[1:])
    assert loaded is not None
    loaded.validate(full=True)
    assert loaded.type == column.type
    assert repr(loaded.to_pylist()) == repr(column.to_pylist()[before:])


@pytest.mark.parametrize("declared", TYPES)
def test_nulls_and_no_rows_are_left_to_rows(declared: BasicTypeInfo) -> None:
    kind = arrow_type(declared, "", {})
    assert dump_column(declared, pa.array([None], kind)) is None
    assert dump_column(declared, pa.array([], kind)) is None
    for rows in ([], [None]):
        assert load_column(declared, serializer_for(declared).dump_rows(rows)) is None


@pytest.mark.slow
@pytest.mark.parametrize("declared", TYPES)
@given(data=st.data())
def test_other_bytes_are_left_to_rows(declared: BasicTypeInfo, data: Any) -> None:
    rows = serializer_for(declared).dump_rows(data.draw(st.lists(VALUES[declared], min_size=1, max_size=4)))
    assert load_column(declared, rows[: data.draw(st.integers(0, len(rows) - 1))]) is None
    assert load_column(declared, rows + b"x") is None


def test_a_lone_surrogate_and_a_byte_that_is_no_bool_are_left_to_rows() -> None:
    assert load_column(Types.STRING(), serializer_for(Types.STRING()).dump_rows(["\ud800"])) is None
    rows = serializer_for(Types.BOOLEAN()).dump_rows([True])
    assert load_column(Types.BOOLEAN(), rows[:-1] + b"\x02") is None


def texts_of_bytes(*values: bytes) -> pa.Array:
    """A column of texts as Spark may have them: it takes any bytes for a text."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("damaged", [b"\xff", b"\xed\xa0\x80", b"\xc3"], ids=["byte", "surrogate", "cut"])
def test_a_text_that_is_no_utf8_is_left_to_rows(damaged: bytes) -> None:
    column = texts_of_bytes(b"a", damaged, b"\xa9b")
    assert dump_column(Types.STRING(), column) is None
    assert dump_column(Types.STRING(), column[:1]) is not None


def test_signalling_nans_are_written_without_a_warning() -> None:
    column = pa.array(np.array([0x7FA00001, 0xFFC00ABC], np.uint32).view(np.float32))
    assert dump_column(Types.FLOAT(), column) == serializer_for(Types.FLOAT()).dump_rows(column.to_pylist())


def test_other_types_are_left_to_rows() -> None:
    assert not has_columns(None)
    assert not has_columns(Types.TUPLE([Types.LONG()]))
    assert not has_columns(Types.CHAR())
    assert dump_column(Types.CHAR(), pa.array(["ab"])) is None
    assert dump_column(Types.INT(), pa.array([1], pa.int64())) is None
    assert dump_column(Types.BIG_INT(), pa.array([1])) is None
    assert load_column(Types.BIG_INT(), serializer_for(Types.BIG_INT()).dump_rows([1])) is None
