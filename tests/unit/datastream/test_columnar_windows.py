"""Columnar windows in a program: the spec and the plan, and what is refused at the line that asks for it."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.datastream.test_windowed_streams import SECOND, rows, without_time
from yarrow.common.time import Time
from yarrow.common.watermark_strategy import NoWatermarksGenerator, TimestampAssigner, WatermarkStrategy
from yarrow.datastream import ColumnarKeyedStream, ColumnarWindowedStream, DataStream, OutputTag, WindowGroups
from yarrow.datastream.data_stream import check_strategy, operator_of
from yarrow.datastream.window import (
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import AggregateKind, ColumnAggregate
from yarrow.runtime.graph.window_spec import ColumnarSessionOperator, ColumnarWindowOperator

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("ms"))])
TUMBLING = TumblingEventTimeWindows.of(SECOND)
LATE = OutputTag("late")


def columns(stream: DataStream | None = None) -> DataStream:
    return (rows() if stream is None else stream).to_arrow(SCHEMA)


def keyed(stream: DataStream | None = None) -> ColumnarKeyedStream:
    return columns(stream).key_by("k")


def test_the_spec_has_the_windows_in_milliseconds() -> None:
    windows = SlidingEventTimeWindows.of(Time.seconds(3), SECOND, Time.milliseconds(5))
    made = keyed().window(windows, "at").allowed_lateness(7).side_output_late_data(LATE)
    assert isinstance(made, ColumnarWindowedStream)
    operator = operator_of(made.aggregate([("n", "sum", "total"), (None, "count")]))
    assert operator.spec == ColumnarWindowOperator(
        key_column="k",
        aggregates=(
            ColumnAggregate(AggregateKind.SUM, "n", "total"),
            ColumnAggregate(AggregateKind.COUNT, None, "count"),
        ),
        size_ms=3000,
        slide_ms=1000,
        offset_ms=5,
        time_column="at",
        allowed_lateness_ms=7,
        late_tag="late",
    )


def test_the_spec_of_sessions_has_the_gap() -> None:
    made = keyed().window(EventTimeSessionWindows.with_gap(SECOND)).allowed_lateness(7).count()
    assert operator_of(made).spec == ColumnarSessionOperator(
        key_column="k",
        aggregates=(ColumnAggregate(AggregateKind.COUNT, None, "count"),),
        gap_ms=1000,
        allowed_lateness_ms=7,
    )


@pytest.mark.parametrize("kind", ["sum", "min", "max", "mean"])
def test_short_forms_are_aggregates(kind: str) -> None:
    windows = keyed().window(TUMBLING)
    short = operator_of(getattr(windows, kind)("n")).spec
    assert short == operator_of(keyed().window(TUMBLING).aggregate([("n", kind)])).spec
    counted = operator_of(keyed().window(TUMBLING).count("rows")).spec
    assert counted == operator_of(keyed().window(TUMBLING).aggregate([(None, "count", "rows")])).spec


def test_the_plan_shows_windows_and_columns() -> None:
    windows = keyed().window(TUMBLING).side_output_late_data(LATE)
    made = windows.sum("n")
    made.get_side_output(LATE).map_batches(lambda batch: batch).name("late rows")
    plan = json.loads(made.get_execution_environment().get_execution_plan())
    nodes = {node["type"]: node for node in plan["nodes"]}
    node = nodes["TumblingEventTimeWindows"]
    assert "Window(TumblingEventTimeWindows, n_sum) of columns" in node["contents"]
    (read,) = nodes["late rows"]["predecessors"]
    assert (read["id"], read["stream_kind"]) == (node["id"], "columnar")


def test_late_rows_are_columns_of_the_schema_that_came() -> None:
    late = keyed().window(TUMBLING).side_output_late_data(LATE).count().get_side_output(LATE)
    assert late.is_columnar
    assert late.transformation.output_schema == columns().transformation.output_schema


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingProcessingTimeWindows.of(SECOND),
        GlobalWindows.create(),
        CountTumblingWindowAssigner.of(3),
    ],
)
def test_windows_without_a_columnar_form_are_refused(assigner: WindowAssigner[Any, Any]) -> None:
    with pytest.raises(
        InvalidProgramError,
        match=r"columnar streams have these windows: .*EventTimeSession.*Convert the stream with to_rows\(\)",
    ):
        keyed().window(assigner)


def test_a_subclass_may_assign_other_windows_and_is_refused() -> None:
    class Shifted(TumblingEventTimeWindows):
        pass

    with pytest.raises(InvalidProgramError, match=r"window\(Shifted\)"):
        keyed().window(Shifted(1000, 0))


def test_a_value_that_is_no_assigner_is_refused() -> None:
    with pytest.raises(TypeError, match="window takes a WindowAssigner"):
        keyed().window(1000)  # type: ignore[arg-type]


def test_a_time_column_must_exist_and_hold_times() -> None:
    with pytest.raises(InvalidProgramError, match="there is no column 'when'"):
        keyed().window(TUMBLING, "when")
    with pytest.raises(
        InvalidProgramError, match="column 'k' is of type string; times are timestamps, or epoch"
    ):
        keyed().window(TUMBLING, "k")


def test_windows_behind_a_source_without_time_need_a_time_column() -> None:
    with pytest.raises(InvalidProgramError, match="nothing before these windows gives records a timestamp"):
        keyed(without_time()).window(TUMBLING).count()
    keyed(without_time()).window(TUMBLING, "at").count()


def test_columns_of_the_result_have_names_of_their_own() -> None:
    windows = keyed().window(TUMBLING)
    with pytest.raises(InvalidProgramError, match=r"two columns of the result are named \['window_end'\]"):
        windows.aggregate([("n", "sum", "window_end")])
    with pytest.raises(InvalidProgramError, match=r"two columns of the result are named \['k'\]"):
        windows.aggregate([("n", "sum", "k")])
    schema = pa.schema([("window_start", pa.int64())])
    with pytest.raises(InvalidProgramError, match=r"named \['window_start'\]"):
        rows().to_arrow(schema).key_by("window_start").window(TUMBLING).count()


@pytest.mark.parametrize("wrong", [[], [("n", "median")], [("m", "sum")], [(None, "sum")]])
def test_aggregates_are_checked_as_running_ones_are(wrong: list[Any]) -> None:
    with pytest.raises(InvalidProgramError):
        keyed().window(TUMBLING).aggregate(wrong)


def test_a_negative_lateness_is_refused() -> None:
    with pytest.raises(InvalidProgramError, match="give whole milliseconds from 0 on"):
        keyed().window(TUMBLING).allowed_lateness(-1)


# ---------------------------------------------------------------------- aggregates of users


def totals(batch: pa.RecordBatch, groups: WindowGroups) -> dict[str, Any]:
    return {"total": np.add.reduceat(batch["n"].to_numpy(), groups.offsets[:-1])}


TOTALS = pa.schema([("total", pa.int64())])


def test_the_spec_of_a_function_has_it_and_its_schema() -> None:
    windows = keyed().window(TUMBLING, "at").allowed_lateness(7).side_output_late_data(LATE)
    spec = operator_of(windows.aggregate_batches(totals, TOTALS)).spec
    assert isinstance(spec, ColumnarWindowOperator)
    assert spec.function is not None
    assert pickle.loads(spec.function).__name__ == "totals"
    assert pa.ipc.read_schema(pa.py_buffer(spec.result_schema)) == TOTALS
    assert (spec.aggregates, spec.size_ms, spec.time_column) == ((), 1000, "at")
    assert (spec.allowed_lateness_ms, spec.late_tag) == (7, "late")
    sessions = keyed().window(EventTimeSessionWindows.with_gap(SECOND)).aggregate_batches(totals, TOTALS)
    assert isinstance(operator_of(sessions).spec, ColumnarSessionOperator)


def test_the_plan_shows_the_columns_of_a_function() -> None:
    made = keyed().window(TUMBLING).aggregate_batches(totals, TOTALS)
    made.map_batches(lambda batch: batch)
    plan = json.loads(made.get_execution_environment().get_execution_plan())
    assert any(
        "Window(TumblingEventTimeWindows, total) of columns" in node["contents"] for node in plan["nodes"]
    )


def test_what_is_no_function_of_batches_is_refused() -> None:
    with pytest.raises(
        TypeError, match="aggregate_batches takes a function of a batch and its groups, not 3"
    ):
        keyed().window(TUMBLING).aggregate_batches(3, TOTALS)  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [None, pa.schema([])])
def test_a_function_without_a_schema_of_results_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidProgramError, match="needs the schema of its results"):
        keyed().window(TUMBLING).aggregate_batches(totals, schema)


@pytest.mark.parametrize("names", [["k"], ["window_end"], ["a", "a"]])
def test_columns_of_a_function_have_names_of_their_own(names: list[str]) -> None:
    schema = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(InvalidProgramError, match="aggregate_batches: two columns of the result are named"):
        keyed().window(TUMBLING).aggregate_batches(totals, schema)


def test_windows_of_a_function_need_time() -> None:
    with pytest.raises(InvalidProgramError, match="nothing before these windows gives records a timestamp"):
        keyed(without_time()).window(TUMBLING).aggregate_batches(totals, TOTALS)


# ---------------------------------------------------------------------- timestamps out of a column

FROM_COLUMN = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")


def test_columns_stay_columns_with_timestamps_out_of_a_column() -> None:
    made = columns(without_time()).assign_timestamps_and_watermarks(FROM_COLUMN)
    assert made.is_columnar
    assert made.transformation.output_schema == columns().transformation.output_schema
    assert made.key_by("k").window(TUMBLING).count().is_columnar


def test_a_timestamp_column_is_checked_where_the_program_names_it() -> None:
    with pytest.raises(InvalidProgramError, match="there is no column 'when'"):
        columns().assign_timestamps_and_watermarks(FROM_COLUMN.with_timestamp_column("when"))
    with pytest.raises(InvalidProgramError, match="column 'k' is of type string"):
        columns().assign_timestamps_and_watermarks(FROM_COLUMN.with_timestamp_column("k"))
    with pytest.raises(InvalidProgramError, match="only a columnar stream has columns to name"):
        rows().assign_timestamps_and_watermarks(FROM_COLUMN)
    with pytest.raises(ValueError, match="takes the name of a column"):
        FROM_COLUMN.with_timestamp_column("")
    own = WatermarkStrategy.for_generator(NoWatermarksGenerator)
    with pytest.raises(InvalidProgramError, match="from_source takes no strategy with a timestamp column"):
        check_strategy(FROM_COLUMN, "from_source")
    assert own.with_timestamp_column("at").timestamp_column == "at"


def test_a_generator_of_the_program_needs_records() -> None:
    class Own(NoWatermarksGenerator):
        pass

    with pytest.raises(InvalidProgramError, match="a generator of your own sees each record"):
        columns().assign_timestamps_and_watermarks(
            WatermarkStrategy.for_generator(Own).with_timestamp_column("at")
        )


def test_a_column_and_an_assigner_replace_each_other() -> None:
    class At(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return 0

    assert FROM_COLUMN.with_timestamp_assigner(At()).timestamp_column is None
    both = FROM_COLUMN.with_timestamp_assigner(At()).with_timestamp_column("at")
    assert (both.timestamp_assigner, both.timestamp_column) == (None, "at")
