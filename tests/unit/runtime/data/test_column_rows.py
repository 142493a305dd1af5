"""Rows of columns of any type, against the Python values of the column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.runtime.data.column_rows import rows_of_batch, rows_of_column, rows_where

LONG = "a text that is longer than a view holds in itself"
TEXTS = ["x", None, LONG, "x", "x", "y"]


def of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array(values, kind)


RUNS = pc.run_end_encode(pa.array(TEXTS))
#: One column of each type that pyarrow takes no rows of, and some that it does.
COLUMNS = {
    "text view": of(pa.string_view(), TEXTS),
    "bytes view": pa.array(TEXTS, pa.large_string()).cast(pa.large_binary()).cast(pa.binary_view()),
    "runs": RUNS,
    "runs of views": pa.RunEndEncodedArray.from_arrays([2, 5, 6], of(pa.string_view(), ["x", None, LONG])),
    "struct of views": of(pa.struct([("q", pa.string_view())]), [{"q": text} for text in TEXTS[:5]] + [None]),
    "struct of runs": pa.StructArray.from_arrays([RUNS], ["q"]),
    "list of views": of(pa.list_(pa.string_view()), [[text] for text in TEXTS[:5]] + [None]),
    "map of views": of(pa.map_(pa.string(), pa.string_view()), [[("a", text)] for text in TEXTS]),
    "list view": of(pa.list_view(pa.string_view()), [[text] for text in TEXTS]),
    "union": pa.UnionArray.from_dense(pa.array([0] * 6, pa.int8()), pa.array(range(6), pa.int32()), [RUNS]),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "number": pa.array([1, 2, None, 4, 5, 6]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_each_type_are_found_by_position_and_by_mask(name: str) -> None:
    column = COLUMNS[name]
    values = column.to_pylist()
    for positions in ([], [3], [5, 0, 0, 2], [0, 1, 2, 3, 4, 5], [4, 5, 2, 3]):
        found = rows_of_column(column, pa.array(positions, pa.int64()))
        found.validate(full=True)
        assert found.type == column.type
        assert found.to_pylist() == [values[position] for position in positions]
    # A slice of a column has positions of its own.
    assert rows_of_column(column.slice(2, 3), pa.array([2, 0])).to_pylist() == [values[4], values[2]]
    batch = pa.record_batch({"number": [10, 11, 12, 13, 14, 15], "column": column})
    kept = rows_where(batch, pa.array([True, False, None, True, True, False]))
    assert kept.schema == batch.schema
    assert kept.to_pydict() == {"number": [10, 13, 14], "column": [values[at] for at in (0, 3, 4)]}
    assert rows_where(batch, pa.array([False] * 6)).num_rows == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=12), st.sampled_from(sorted(COLUMNS)))
def test_rows_stand_in_the_order_of_their_positions(positions: list[int], name: str) -> None:
    batch = pa.record_batch({"column": COLUMNS[name]})
    found = rows_of_batch(batch, pa.array(positions, pa.int64()))
    values = COLUMNS[name].to_pylist()
    assert found.column("column").to_pylist() == [values[position] for position in positions]


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("a", pa.string_view()), ("b", pa.int64())]),
        pa.list_(pa.binary_view()),
        pa.large_list(pa.string_view()),
        pa.list_(pa.string_view(), 2),
        pa.map_(pa.string_view(), pa.int64()),
        pa.list_(pa.struct([("a", pa.list_(pa.string_view()))])),
    ],
    ids=str,
)
def test_chosen_rows_of_nested_views_take_the_bytes_of_these_rows(kind: pa.DataType) -> None:
    text = "a text that is too long for a view of its own"
    if pa.types.is_struct(kind):
        value: Any = {"a": text, "b": 1}
    elif pa.types.is_map(kind):
        value = [(text, 1)]
    elif pa.types.is_struct(kind.value_type):
        value = [{"a": [text]}]
    else:
        value = [text.encode() if kind.value_type == pa.binary_view() else text] * 2
    rows = pa.record_batch([pa.array([value, None] * 500, kind)], ["c"])
    few = rows
    for _ in range(4):
        # Again and again, as state is chosen and put together.
        few = rows_of_batch(few, pa.array(range(0, len(few), 3)))
        few = pa.concat_batches([few, few])
        assert few["c"].type == kind
    expected = pa.record_batch([pa.array(few["c"].to_pylist(), kind)], ["c"])
    assert few.serialize().size <= 2 * expected.serialize().size
    assert rows_where(rows, pa.array([True, False] * 500))["c"].to_pylist() == rows["c"].to_pylist()[::2]


class Tagged(pa.ExtensionType):  # type: ignore[misc]
    """A type of a program: it has no hash."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Tagged:
        return cls(storage)


@pytest.mark.parametrize("storage", [pa.int64(), pa.string_view(), pa.list_(pa.string_view())], ids=str)
def test_extension_types_of_a_program_are_chosen_as_what_they_store(storage: pa.DataType) -> None:
    values: list[Any] = [1, None, 3]
    if storage != pa.int64():
        values = [None if value is None else str(value) for value in values]
    if pa.types.is_list(storage):
        values = [[value] for value in values]
    tagged = pa.ExtensionArray.from_storage(Tagged(storage), pa.array(values, storage))
    chosen = rows_of_batch(pa.record_batch([tagged], ["c"]), pa.array([2, 1]))["c"]
    assert chosen.type == tagged.type
    assert chosen.to_pylist() == [values[2], values[1]]
