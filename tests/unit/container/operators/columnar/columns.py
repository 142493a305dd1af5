"""Key columns of every type, as hypothesis strategies, and helpers to cut columns into batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from yarrow.runtime.data.elements import ArrowBatch

_days = st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))
_moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
_floats = st.floats(width=32) | st.integers(-3, 3).map(float) | st.sampled_from([-0.0, float("nan"), 1e300])

#: Arrow type and values of key columns; few distinct values, so that keys repeat.
KEY_COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-5, 5)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)),
    "uint64": (pa.uint64(), st.integers(2**63 - 2, 2**63 + 2) | st.integers(0, 3)),
    "bool": (pa.bool_(), st.booleans()),
    "float64": (pa.float64(), _floats),
    "date32": (pa.date32(), _days),
    "time64": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), _moments),
    "instant": (pa.timestamp("us", "UTC"), _moments.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    "string": (pa.string(), st.text(max_size=2)),
    "binary": (pa.binary(), st.binary(max_size=2)),
    "decimal": (pa.decimal128(6, 2), st.integers(-300, 300).map(lambda value: Decimal(value) / 100)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.tuples(st.integers(0, 2), st.sampled_from(["x", "y", None])).map(
            lambda pair: dict(zip("ab", pair, strict=True))
        ),
    ),
}


def array_of(values: Sequence[Any], kind: Any) -> Any:
    """The values as an Arrow array, dictionaries encoded."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def cut(columns: dict[str, Any], cuts: Sequence[int]) -> list[ArrowBatch]:
    """One batch of the columns cut at these rows."""
    whole = pa.record_batch(list(columns.values()), names=list(columns))
    edges = [0, *sorted(c for c in set(cuts) if 0 < c < whole.num_rows), whole.num_rows]
    return [ArrowBatch(whole.slice(start, end - start)) for start, end in pairwise(edges) if end > start]


def times_of(batch: ArrowBatch) -> list[int | None]:
    """The timestamps of a batch that has them."""
    assert batch.timestamps is not None
    times: list[int | None] = batch.timestamps.to_pylist()
    return times
