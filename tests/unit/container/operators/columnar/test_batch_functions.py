"""map_batches and filter_batches in every container: results, nulls, checks of what functions return."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.task_environments import task_environment
from tests.unit.container.operators.columnar.columns import times_of
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.columnar.batch_functions import BatchFunctionCaller
from yarrow.container.operators.columnar.declared_columns import BatchFunctionError
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.column_spec import BatchFunctionOperator, BatchShape
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import BatchContainer

C = BatchContainer
FRAMES = [C.PYARROW, C.PYARROW_TABLE, C.POLARS, C.PANDAS]

BATCH = pa.record_batch(
    {
        "id": pa.array([1, None, 3], pa.int64()),
        "small": pa.array([None, 2, 3], pa.int8()),
        "x": pa.array([0.5, None, float("nan")]),
        "text": pa.array(["a", None, ""]),
        "flag": pa.array([True, None, False]),
        "day": pa.array([dt.date(2020, 1, 1), None, dt.date(1969, 1, 1)]),
        "at": pa.array([dt.datetime(2020, 1, 1, 1, 2, 3, 4), None, None], pa.timestamp("us")),
        "instant": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None, None], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal128(9, 2)),
        "tags": pa.array([["a", None], None, []], pa.list_(pa.string())),
    }
)


def _context(spec: BatchFunctionOperator) -> OperatorContext:
    environment = task_environment()
    return OperatorContext.of(
        environment, OperatorDescriptor(id=OperatorID("0" * 32), name="enrich", spec=spec)
    )


def _caller(
    function: Any,
    shape: BatchShape = BatchShape.MAP_BATCHES,
    container: BatchContainer = C.PYARROW,
    schema: Any = None,
) -> BatchFunctionCaller:
    spec = BatchFunctionOperator(
        shape=shape,
        function=cloudpickle.dumps(function),
        container=container,
        schema=None if schema is None else schema.serialize().to_pybytes(),
    )
    caller = BatchFunctionCaller("enrich", spec)
    caller.setup(_context(spec))
    caller.open()
    return caller


def _mapped(
    function: Any, batch: Any = BATCH, container: BatchContainer = C.PYARROW, schema: Any = None
) -> Any:
    (result,) = _caller(function, container=container, schema=schema).process_batch(ArrowBatch(batch))
    return result.batch


def _filtered(function: Any, batch: ArrowBatch, container: BatchContainer = C.PYARROW) -> list[ArrowBatch]:
    return list(_caller(function, BatchShape.FILTER_BATCHES, container).process_batch(batch))


@pytest.mark.parametrize("container", FRAMES)
def test_a_batch_passes_through_every_container_unchanged(container: BatchContainer) -> None:
    passed = _mapped(lambda frame: frame, container=container, schema=BATCH.schema)
    assert passed.schema == BATCH.schema
    assert repr(passed.to_pylist()) == repr(BATCH.to_pylist())


@pytest.mark.parametrize("container", [C.POLARS, C.PANDAS])
def test_a_library_that_is_not_installed_names_its_extra(
    container: BatchContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, container.value, None)
    with pytest.raises(UnsupportedFeatureError, match=rf"pip install 'yarrow\[{container.value}\]'"):
        _mapped(lambda frame: frame, container=container, schema=BATCH.schema)


@pytest.mark.parametrize("container", FRAMES)
def test_without_a_declared_schema_common_types_stay(container: BatchContainer) -> None:
    given = BATCH.select(["id", "small", "x", "text", "flag", "day", "price"])
    passed = _mapped(lambda frame: frame, given, container)
    assert passed.schema.types == given.schema.types
    assert repr(passed.to_pylist()) == repr(given.to_pylist())


def test_the_function_gets_its_container() -> None:
    seen = {
        container: type(_caller(lambda frame: frame, container=container)._adapter.from_arrow(BATCH))
        for container in FRAMES
    }
    assert [f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in seen.values()] == [
        "pyarrow.RecordBatch",
        "pyarrow.Table",
        "polars.DataFrame",
        "pandas.DataFrame",
    ]


def test_pandas_keeps_integers_with_nulls_and_computes_on_them() -> None:
    schema = pa.schema([("id", pa.int64())])
    doubled = _mapped(lambda df: df[["id"]] * 2, container=C.PANDAS, schema=schema)
    assert doubled.column("id").to_pylist() == [2, None, 6]


def test_missing_values_of_pandas_are_null_and_nan_of_floats_is_not() -> None:
    def make(df: Any) -> Any:
        import pandas as pd

        return pd.DataFrame(
            {"x": np.array([1.0, np.nan, 2.0]), "t": ["a", np.nan, None], "i": pd.array([1, None, 3])}
        )

    made = _mapped(make, container=C.PANDAS)
    assert repr(made.column("x").to_pylist()) == "[1.0, nan, 2.0]"
    assert made.column("t").to_pylist() == ["a", None, None]
    assert made.column("i").to_pylist() == [1, None, 3]


def test_polars_lazy_frames_and_computed_columns() -> None:
    def make(frame: Any) -> Any:
        import polars as pl

        return frame.lazy().select("text", (pl.col("id") + 1).alias("next"))

    made = _mapped(make, container=C.POLARS)
    assert made.schema == pa.schema([("text", pa.string()), ("next", pa.int64())])
    assert made.column("next").to_pylist() == [2, None, 4]


def _halves(batch: Any) -> Iterator[Any]:
    yield batch.slice(0, 1)
    yield pa.Table.from_batches([batch.slice(1)])


@pytest.mark.parametrize("function", [_halves, lambda batch: list(_halves(batch))])
def test_several_batches_share_out_times_and_kinds(function: Callable[[Any], Any]) -> None:
    given = ArrowBatch(BATCH, pa.array([7, 8, 9]), b"\x00\x01\x02")
    first, second = _caller(function).process_batch(given)
    assert (times_of(first), first.kinds) == ([7], b"\x00")
    assert (times_of(second), second.kinds) == ([8, 9], b"\x01\x02")


def test_another_number_of_rows_has_no_times() -> None:
    (result,) = _caller(lambda batch: batch.slice(1)).process_batch(ArrowBatch(BATCH, pa.array([7, 8, 9])))
    assert (len(result), result.timestamps) == (2, None)
    assert list(_caller(lambda batch: []).process_batch(ArrowBatch(BATCH))) == []
    with pytest.raises(BatchFunctionError, match="2 rows for a batch of 3 rows with updates"):
        _caller(lambda batch: batch.slice(1)).process_batch(ArrowBatch(BATCH, None, b"\x00\x01\x02"))


def test_lossless_casts_to_the_declared_schema() -> None:
    schema = pa.schema([("a", pa.int16()), ("b", pa.float64()), ("c", pa.large_string()), ("d", pa.int32())])
    made = _mapped(
        lambda _: pa.record_batch({"a": [1, 2], "b": [1, None], "c": ["x", "y"], "d": pa.nulls(2)}),
        schema=schema,
    )
    assert made.schema == schema
    assert made.to_pylist() == [
        {"a": 1, "b": 1.0, "c": "x", "d": None},
        {"a": 2, "b": None, "c": "y", "d": None},
    ]


@pytest.mark.parametrize(
    ("column", "wanted", "message"),
    [
        (pa.array([300]), pa.int8(), "expected int8, got int64 with a value that does not fit"),
        (pa.array([1.5]), pa.int64(), "expected int64, got double"),
        (pa.array([0.1]), pa.float32(), "lose digits"),
        (pa.array(["1"]), pa.int64(), "expected int64, got string;"),
        (pa.array([1]), pa.string(), "expected string, got int64;"),
        (
            BATCH.column("instant"),
            pa.timestamp("us"),
            r"expected timestamp\[us\], got timestamp\[us, tz=UTC\]",
        ),
        (BATCH.column("at"), pa.timestamp("s"), "does not fit"),
        (pa.array([2**53 + 1]), pa.float64(), "does not fit"),
        (pa.array([float("nan")]), pa.int64(), "does not fit"),
    ],
)
def test_lossy_casts_name_operator_column_and_types(column: Any, wanted: Any, message: str) -> None:
    with pytest.raises(BatchFunctionError, match=f"'enrich': column 'c' of the result: .*{message}"):
        _mapped(lambda _: pa.record_batch({"c": column}), schema=pa.schema([("c", wanted)]))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: None, r"expected a pyarrow RecordBatch .*, got builtins.NoneType"),
        (lambda batch: [1], "got builtins.int"),
        (lambda batch: batch.select(["id"]), r"expected the columns \['id', 'x'\], got \['id'\]"),
        (lambda batch: batch.select(["x", "id"]), r"got \['x', 'id'\]; return them in this order"),
        (lambda batch: batch.select(["id", "x"]), "expected int64 without nulls, got 1 nulls"),
    ],
)
def test_results_of_another_shape_are_refused(function: Any, message: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64())])
    with pytest.raises(BatchFunctionError, match=f"'enrich': .*{message}"):
        _mapped(function, schema=schema)


def test_a_named_index_of_pandas_is_not_lost_in_silence() -> None:
    with pytest.raises(BatchFunctionError, match=r"index is named \['text'\] \(call reset_index"):
        _mapped(lambda df: df.groupby("text").sum("id"), container=C.PANDAS)


def _polars_column(name: str) -> Any:
    import polars as pl

    return pl.col(name)


MASKS: list[tuple[BatchContainer, Any]] = [
    (C.PYARROW, lambda b: pc.greater(b["id"], 1)),
    (C.PYARROW_TABLE, lambda t: pc.greater(t["id"], 1)),
    (C.PYARROW, lambda b: np.array([False, False, True])),
    (C.PYARROW, lambda b: [False, None, True]),
    (C.POLARS, lambda df: df["id"] > 1),
    (C.POLARS, lambda df: _polars_column("id") > 1),
    (C.PANDAS, lambda df: df["id"] > 1),
    (C.PANDAS, lambda df: (df["id"] > 1).to_numpy(dtype=bool, na_value=False)),
]


@pytest.mark.parametrize(("container", "function"), MASKS)
def test_every_kind_of_mask_filters_rows_with_their_times(container: BatchContainer, function: Any) -> None:
    (kept,) = _filtered(function, ArrowBatch(BATCH, pa.array([7, 8, 9]), b"\x00\x01\x02"), container)
    assert repr(kept.batch.to_pylist()) == repr(BATCH.slice(2).to_pylist())
    assert (times_of(kept), kept.kinds) == ([9], b"\x02")


def test_filters_of_all_and_of_nothing() -> None:
    batch = ArrowBatch(BATCH)
    (kept,) = _filtered(lambda b: [True] * 3, batch)
    assert kept is batch
    assert _filtered(lambda b: pa.nulls(3, pa.bool_()), batch) == []
    (kept,) = _filtered(lambda df: __import__("polars").lit(True), batch, C.POLARS)
    assert kept is batch


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b: [True], "expected 3 values, one a row, got 1"),
        (lambda b: [1, 0, 1], "expected a boolean column, got int64"),
        (lambda b: b, "expected a boolean column, got pyarrow.lib.RecordBatch"),
        (lambda b: True, "got builtins.bool"),
        (lambda b: ["a", 1, None], "got a list"),
    ],
)
def test_what_is_no_mask_is_refused(function: Any, message: str) -> None:
    with pytest.raises(BatchFunctionError, match=f"'enrich': filter_batches .*{message}"):
        _filtered(function, ArrowBatch(BATCH))


class Rich:
    """A columnar function with a life cycle."""

    log: list[str]

    def open(self, context: Any) -> None:
        self.log = [context.get_task_name()]

    def map_batches(self, batch: Any) -> Any:
        self.log.append("map")
        return batch

    def close(self) -> None:
        self.log.append("close")


def test_rich_functions_are_opened_and_closed_once() -> None:
    caller = _caller(Rich())
    caller.process_batch(ArrowBatch(BATCH))
    caller.close()
    caller.close()
    assert caller.function.log == ["task", "map", "close"]
