"""What a look at the files says before Spark reads them; and whole jobs whose files Spark SQL does not get."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.container.batch import parquet_scan
from yarrow.container.batch.parquet_scan import ScanFiles, files_of
from yarrow.container.batch.split_assignment import assign
from yarrow.datastream.connectors.file_format import FileSourceSplit
from yarrow.datastream.connectors.file_source import FileEnumeratorProvider, FileSource
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.local import LocalFileSystem
from yarrow.runtime.graph.batch.batch_plan import SqlAggregation
from yarrow.runtime.graph.batch.batch_planner import plan

NO_WATERMARKS: Any = WatermarkStrategy.no_watermarks()
TABLE = pa.table(
    {
        "k": pa.array(["a", "b", None, "a"]),
        "v": pa.array([1, None, -3, 4], pa.int64()),
        "t": pa.array([dt.datetime(2026, 1, day) for day in range(1, 5)], pa.timestamp("us", "UTC")),
    }
)


def looked_at(
    folder: Path, schema: pa.Schema | None = None, splits: FileEnumeratorProvider | None = None
) -> ScanFiles:
    """What is said of the files in a folder."""
    sql, found = scan_of(folder, schema, splits)
    return files_of(sql, found, never_asked)


def scan_of(
    folder: Path, schema: pa.Schema | None = None, splits: FileEnumeratorProvider | None = None
) -> tuple[SqlAggregation, list[list[bytes]]]:
    """Of a program that sums `v` and takes the last `t` of each `k`: what Spark SQL does, and the encoded splits."""
    env = environment(2)
    builder = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(schema), str(folder))
    if splits is not None:
        builder.set_file_enumerator(splits)
    stream = env.from_source(builder.build(), NO_WATERMARKS, "files").key_by("k")
    stream.aggregate([("v", "sum"), ("t", "max")]).to_rows().print()
    graph = env.get_job_graph()
    stage, *_ = plan(graph).stages
    assert stage.sql is not None, stage.no_sql
    return stage.sql, assign(graph, stage.vertex_id, stage.parallelism)


def never_asked(path: str) -> str:
    """Java is asked for files of HDFS alone."""
    raise AssertionError(path)


def test_files_as_declared_are_read_by_spark(tmp_path: Path) -> None:
    for name in ("two", "one"):
        pq.write_table(TABLE, tmp_path / f"{name}.parquet", compression="zstd", row_group_size=2)
    paths = tuple(str(tmp_path / f"{name}.parquet") for name in ("one", "two"))
    assert looked_at(tmp_path) == ScanFiles(paths, "")
    # Several splits of a file are one file.
    small = FileEnumeratorProvider.default_splittable_file_enumerator(100)
    assert looked_at(tmp_path, splits=small) == ScanFiles(paths, "")


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "1.parquet")
    changed = TABLE.set_column(1, "v", TABLE["v"].cast(pa.int32()))
    pq.write_table(changed, tmp_path / "2.parquet")
    why = f"{tmp_path}/2.parquet: column 'v' is of type int32, and int64 is declared"
    assert looked_at(tmp_path).why_not == why
    pq.write_table(TABLE.drop_columns("t"), tmp_path / "2.parquet")
    assert looked_at(tmp_path).why_not == f"{tmp_path}/2.parquet: it has no single column 't'"
    (tmp_path / "2.parquet").write_bytes(b"no Parquet at all")
    assert looked_at(tmp_path).why_not.startswith(f"{tmp_path}/2.parquet cannot be opened: ")


@pytest.mark.parametrize("largest", [2**62, -(2**62)])
def test_sums_that_may_exceed_64_bits_stay_in_python(tmp_path: Path, largest: int) -> None:
    rows = TABLE.set_column(1, "v", pa.array([largest, largest // 2, 0, None], pa.int64()))
    pq.write_table(rows, tmp_path / "1.parquet")
    assert looked_at(tmp_path).why_not == "a sum of column 'v' may exceed 64 bits"
    pq.write_table(TABLE, tmp_path / "1.parquet", write_statistics=False)
    assert looked_at(tmp_path).why_not == "a sum of column 'v' may exceed 64 bits"


def test_columns_of_nulls_have_sums(tmp_path: Path) -> None:
    rows = TABLE.set_column(1, "v", pa.nulls(4, pa.int64()))
    pq.write_table(rows, tmp_path / "1.parquet")
    assert looked_at(tmp_path).why_not == ""


def test_times_of_other_units_and_calendars_stay_in_python(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "1.parquet", coerce_timestamps="ms")
    # The unit of the file is milliseconds, and Arrow's own note in the file says microseconds.
    assert "column 't'" in looked_at(tmp_path, TABLE.schema).why_not
    old = TABLE.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    pq.write_table(old, tmp_path / "1.parquet")
    assert looked_at(tmp_path).why_not.endswith(
        "column 't' was written by a version of Spark with another calendar"
    )


def test_encodings_and_codecs_that_spark_may_lack(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(TABLE, path, compression="brotli")
    assert looked_at(tmp_path).why_not == f"{path}: column 'k' is compressed by BROTLI"
    pq.write_table(TABLE, path, use_dictionary=["k"], column_encoding={"v": "BYTE_STREAM_SPLIT"})
    assert looked_at(tmp_path).why_not == f"{path}: column 'v' is encoded by BYTE_STREAM_SPLIT"


def test_paths_that_spark_takes_otherwise(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a{1}.parquet")
    assert looked_at(tmp_path).why_not == f"Spark takes the path {tmp_path}/a{{1}}.parquet for a pattern"
    hidden = tmp_path / "_hidden.parquet"
    (tmp_path / "a{1}.parquet").rename(hidden)
    assert looked_at(hidden).why_not == f"Spark leaves {hidden} out"


class Hdfs(LocalFileSystem):
    """Has the files of a folder below `hdfs://name`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, path: str) -> Any:
        return super().open(str(self._folder / path.removeprefix("hdfs://name/")))


@pytest.mark.parametrize("why", ["", "no route to name"])
def test_java_is_asked_for_one_file_of_each_hdfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    for name in ("1", "2"):
        pq.write_table(TABLE, tmp_path / f"{name}.parquet")
    stage, _ = scan_of(tmp_path)
    size = (tmp_path / "1.parquet").stat().st_size
    paths = tuple(f"hdfs://name/{number}.parquet" for number in "12")
    moved = [pickle.dumps(FileSourceSplit(path, path, 0, size, size)) for path in paths]
    monkeypatch.setattr(parquet_scan, "file_system_for", lambda path: Hdfs(tmp_path))
    asked = []

    def why_unread(path: str) -> str:
        asked.append(path)
        return why

    found = files_of(stage, [moved], why_unread)
    assert found == ScanFiles(paths, f"Java cannot read {paths[0]}: {why}" if why else "")
    assert asked == [paths[0]]


class Halves(FileEnumeratorProvider):
    """Leaves the second half of each file out."""

    def splits_of(self, file: FileStatus, may_split: bool) -> Iterator[FileSourceSplit]:
        yield FileSourceSplit(file.path, file.path, 0, file.size // 2, file.size)


def test_parts_of_files_stay_in_python(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "1.parquet")
    why = looked_at(tmp_path, splits=Halves()).why_not
    assert why == f"a part of {tmp_path}/1.parquet is read, not the whole file"
