"""Savepoints as DataFrames, beside Spark writing the same keyed rows as Parquet, and SavepointReader in one process.

Rows are a whole number as key and one as value, read from Parquet files that each run of the program makes first.
Started from the root of the checkout as `python -m bench.programs.savepoint_frames`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.peers.spark_session import spark_session
from bench.repeated_runs import measure, report
from yarrow.common import Types
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.state_processor import SavepointReader, SavepointWriter
from yarrow.state_processor.spark import DataFrameTransformation, SavepointDataFrames

UID = "op"
STATE: ValueStateDescriptor[int] = ValueStateDescriptor("v", Types.LONG())
_FACTOR = 7
#: With a limit, Spark adds up the size of a batch behind each row.
BYTES_OF_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
JOBS = ("write", "native", "parquet", "read", "reader")


def rows_of(session: SparkSession, keys: int, folder: Path) -> DataFrame:
    """The rows, from files."""
    made = session.range(0, keys, 1, 2).selectExpr("id as key", f"id * {_FACTOR} as value")
    made.write.parquet(f"{folder}/rows")
    return session.read.parquet(f"{folder}/rows")


def write(rows: DataFrame, path: str, *, native: bool) -> None:
    """A savepoint of the rows."""
    state = DataFrameTransformation.bootstrap_with(rows).key_by("key").to_state(STATE, native=native)
    SavepointWriter.new_savepoint(max_parallelism=128).with_operator(UID, state).write(path)


def check(found: int, keys: int) -> None:
    wanted = _FACTOR * keys * (keys - 1) // 2
    if found != wanted:
        raise AssertionError(f"the values add up to {found}, not to {wanted}")


def run_of(job: str, session: SparkSession, keys: int, folder: Path) -> Callable[[], None]:
    """What is measured: a plan that may run any number of times."""
    rows = rows_of(session, keys, folder)
    path = str(folder / "savepoint")

    def written() -> None:
        shutil.rmtree(path, ignore_errors=True)
        if job == "parquet":
            rows.write.parquet(path)
        else:
            write(rows, path, native=job == "native")

    def read() -> None:
        frame = SavepointDataFrames.read(session, path).read_keyed_state(UID, STATE.get_name())
        check(frame.agg(F.sum("value")).collect()[0][0], keys)

    def read_in_one_process() -> None:
        with SavepointReader.read(path) as reader:
            check(pc.sum(reader.read_keyed_state(UID, STATE.get_name()).column("value")).as_py(), keys)

    if job in ("read", "reader"):
        write(rows, path, native=False)
        return read if job == "read" else read_in_one_process
    return written


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int, help="keys")
    arguments.add_argument("--job", choices=JOBS, default="write")
    arguments.add_argument("--runs", type=int, default=2)
    arguments.add_argument("--keep", help="copy what was written last to this folder")
    arguments.add_argument("--no-byte-limit", action="store_true", help="Spark limits batches by rows alone")
    given = arguments.parse_args()
    with (
        TemporaryDirectory(prefix="bench-savepoint-") as folder,
        spark_session("bench savepoints") as session,
    ):
        if given.no_byte_limit:
            session.conf.set(BYTES_OF_BATCH, str(2**31 - 1))
        found = measure(given.records, given.runs, run_of(given.job, session, given.records, Path(folder)))
        if given.keep:
            shutil.copytree(f"{folder}/savepoint", given.keep)
    report(found)


if __name__ == "__main__":
    main()
