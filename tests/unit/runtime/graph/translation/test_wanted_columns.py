"""What filters and selections behind a source leave of its columns and rows, and where they leave all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.common.values.conditions import AllOf, WantedColumns
from yarrow.datastream import DataStream
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.graph.batch.batch_plan_text import lines_of
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.translation.plan import execution_plan_of_job
from yarrow.table.expressions import col

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string()), ("d", pa.float64())])
STRATEGY: Any = WatermarkStrategy.no_watermarks()
A, B = col("a") > 1, col("b") == 2


class OwnFormat(ParquetColumnarRowInputFormat):
    """A format of the program."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "one.parquet")
    return str(tmp_path)


def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def wanted(folder: str, build: Any, file_format: Any = None, strategy: Any = STRATEGY) -> WantedColumns:
    """The columns and rows of the files in `folder` that the program wants."""
    env = environment(2)
    source = FileSource.for_bulk_file_format(file_format or ParquetColumnarRowInputFormat(), folder).build()
    build(env.from_source(source, strategy, "files"))
    spec = env.get_job_graph().vertices[0].head.spec
    assert isinstance(spec, SourceOperator)
    return spec.wanted


def printed(stream: DataStream) -> None:
    stream.to_rows().print()


def branches(files: DataStream) -> None:
    printed(files.filter(A).select("a"))
    printed(files)


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (lambda files: printed(files.select("c", "a")), WantedColumns(("c", "a"))),
        (lambda files: printed(files.filter(A)), WantedColumns(condition=A)),
        (lambda files: printed(files.filter(A).select("c")), WantedColumns(("c", "a"), A)),
        (lambda files: printed(files.select("b", "c").filter(B)), WantedColumns(("b", "c"), B)),
        (
            lambda files: printed(files.filter(A).select("b").filter(B).select("b").map_batches(unchanged)),
            WantedColumns(("b", "a"), AllOf((A, B))),
        ),
        # Any column may be read by these, and rows that reach them may not be left out.
        (lambda files: printed(files.map_batches(unchanged, SCHEMA).filter(A).select("a")), WantedColumns()),
        (
            lambda files: printed(files.filter(A).filter(pc.field("d") > 1).select("a")),
            WantedColumns(condition=A),
        ),
        (branches, WantedColumns()),
        (lambda files: printed(files.disable_chaining().select("a")), WantedColumns()),
    ],
)
def test_filters_and_selections_reach_into_the_scan(folder: str, build: Any, found: WantedColumns) -> None:
    assert wanted(folder, build) == found


def test_sources_that_make_times_or_read_otherwise_are_left_as_they_are(folder: str) -> None:
    def build(files: DataStream) -> None:
        printed(files.filter(A).select("c"))

    assert wanted(folder, build, strategy=WatermarkStrategy.for_monotonous_timestamps()) == WantedColumns()
    assert wanted(folder, build, OwnFormat()) == WantedColumns()
    # Letters hold all columns of a row that cannot be read.
    assert wanted(folder, build, ParquetColumnarRowInputFormat().on_error("skip")) == WantedColumns()
    by_any_case = ParquetColumnarRowInputFormat(SCHEMA, is_case_sensitive=False)
    assert wanted(folder, build, by_any_case) == WantedColumns()


def test_the_plan_shows_what_is_left_out(folder: str) -> None:
    env = environment(2)
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), folder).build()
    printed(env.from_source(source, STRATEGY, "files").filter(A).select("c"))
    graph = env.get_job_graph()
    text = (
        "the reader decodes the columns c, a alone; leaves out row groups in which no row can meet the filters, by"
        " their statistics"
    )
    assert execution_plan_of_job(graph)["nodes"][0]["scan"] == text
    assert "scan" not in execution_plan_of_job(graph)["nodes"][1]
    assert graph.plan["nodes"][0]["operator_strategy"] == text
    assert any(text in line for line in lines_of(plan(graph)))


def test_a_history_reads_everything(folder: str) -> None:
    env = environment(2)
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), folder).build()
    printed(env.from_source(source, STRATEGY, "files").select("c"))
    spec = env.get_job_graph().vertices[0].head.spec
    history = spec.as_history
    assert isinstance(spec, SourceOperator) and spec.wanted
    assert isinstance(history, SourceOperator) and not history.wanted
