"""Bounded programs on Spark, parallelism 2, the same plan several times in one SparkDriver: the last run counts.

The driver is the process that a cluster starts; the master beside it is played, since each of the engine's jobs has a
driver of its own. `--check` collects the results of one run and prints them in short. Started as
`python -m bench.programs.batch` from the root of the checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.process_trees import tree
from bench.programs import batch_functions as functions
from bench.programs.batch_files import parquet_folder
from bench.programs.columnar import DroppingSink as DroppingColumns
from bench.programs.rows import DroppingSink as DroppingRows
from bench.repeated_runs import measure, report
from tests.support.batch_runner import collecting_graph
from tests.support.spark_driver import DriverUnderTest, spark_driver
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.graph.batch.batch_sql import driver_configuration
from yarrow.runtime.graph.job_graph import JobGraph

Environment = StreamExecutionEnvironment
_PAIR: Final = Types.TUPLE([Types.LONG(), Types.LONG()])
_EVENT: Final = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
_RECORD: Final = Types.TUPLE([Types.LONG(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
_NO_WATERMARKS: Final = WatermarkStrategy.no_watermarks()
#: Rows that the Parquet reader gives at once.
_ROWS_OF_BATCH: Final = 65_536
#: Seconds that a run may take.
_LIMIT: Final = 280.0


class EventTimes(TimestampAssigner):
    """The time that an event carries."""

    def extract_timestamp(self, value: functions.Event, record_timestamp: int) -> int:
        return value[1]


def numbers(env: Environment, records: int) -> DataStream:
    return env.from_source(NumberSequenceSource(0, records - 1), _NO_WATERMARKS, "numbers")


def reduce(env: Environment, records: int, keys: int) -> DataStream:
    """map, key_by, reduce."""
    pairs = numbers(env, records).map(functions.pair_of(keys), _PAIR)
    return pairs.key_by(functions.key_of, Types.LONG()).reduce(functions.add)


def process(env: Environment, records: int, keys: int) -> DataStream:
    """A KeyedProcessFunction with a value and a timer a key, over events that are out of order."""
    events = numbers(env, records).map(functions.event_of(keys), _EVENT)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTimes())
    keyed = events.assign_timestamps_and_watermarks(times).key_by(functions.key_of, Types.LONG())
    return keyed.process(functions.SumAtTimer(), _PAIR)


def one_key(env: Environment, records: int, keys: int) -> DataStream:
    """One key with all records, of 100 bytes each."""
    found = numbers(env, records).map(functions.record_of_one_key, _RECORD)
    return found.key_by(functions.key_of, Types.LONG()).process(functions.CountAtTimer(), _PAIR)


def columns(env: Environment, records: int, keys: int) -> DataStream:
    """Parquet files, grouped by their key, by built-in aggregates."""
    return _files(env, records).key_by("k").aggregate(functions.AGGREGATES)


def mapped_columns(env: Environment, records: int, keys: int) -> DataStream:
    """The same behind a user's function on columns."""
    mapped = _files(env, records).map_batches(functions.weighted, functions.COLUMNS)
    return mapped.key_by("k").aggregate(functions.AGGREGATES)


def _files(env: Environment, rows: int) -> DataStream:
    files = ParquetColumnarRowInputFormat(functions.COLUMNS, batch_size=_ROWS_OF_BATCH)
    source = FileSource.for_bulk_file_format(files, str(parquet_folder(rows))).build()
    return env.from_source(source, _NO_WATERMARKS, "files")


JOBS: dict[str, Callable[[Environment, int, int], DataStream]] = {
    "reduce": reduce,
    "process": process,
    "one-key": one_key,
    "columns": columns,
    "mapped-columns": mapped_columns,
}
COLUMNAR = ("columns", "mapped-columns")


def graph_of(job: str, records: int, keys: int, *, collecting: bool = False) -> JobGraph:
    """The program's graph: its rows are dropped, or collected as tuples."""
    settings = {"parallelism.default": "2", "execution.runtime-mode": "BATCH"}
    env = Environment.get_execution_environment(Configuration.from_dict(settings))
    results = JOBS[job](env, records, keys)
    if collecting:
        return collecting_graph(env, results.to_rows(as_tuple=True) if job in COLUMNAR else results)
    results.sink_to(DroppingColumns() if job in COLUMNAR else DroppingRows())
    return env.get_job_graph()


def driver_options(graph: JobGraph, given: Sequence[str]) -> dict[str, str]:
    """The configuration with which a master asks for the job's driver, under options KEY=VALUE of the command line."""
    return {**driver_configuration(graph), **dict(option.split("=", 1) for option in given)}


def run_once(driver: DriverUnderTest, graph: JobGraph) -> None:
    """One run to its end. Raises RuntimeError with the traceback of a failure."""
    outcome = driver.submit(graph)[1].result(_LIMIT)
    if outcome.failure is not None:
        raise RuntimeError(outcome.failure.stacktrace)


def peak_worker_mib() -> float:
    """Most memory that one of Spark's Python workers has held, in MiB."""
    most = 0
    for pid in tree(os.getpid()):
        with contextlib.suppress(OSError):  # ended meanwhile
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            facts = dict(line.split(":", 1) for line in lines if ":" in line)
            if facts["Name"].strip() == "yarrow-batch" and "VmHWM" in facts:
                most = max(most, int(facts["VmHWM"].split()[0]))
    return round(most / 1024, 1)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--job", choices=JOBS, default="reduce")
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--runs", type=int, default=2)
    arguments.add_argument("--memory", action="store_true", help="report the peak memory of a Python worker")
    arguments.add_argument("--check", action="store_true", help="collect the results of one run")
    arguments.add_argument(
        "--option", action="append", default=[], help="KEY=VALUE for the driver; repeatable"
    )
    given = arguments.parse_args()
    graph = graph_of(given.job, given.records, given.keys, collecting=given.check)
    options = driver_options(graph, given.option)
    with (
        tempfile.TemporaryDirectory(prefix="bench-batch-") as folder,
        spark_driver(Path(folder), configuration=options) as driver,
    ):
        driver.application()
        if given.check:
            rows = driver.submit(graph)[1].result(_LIMIT).collected()
            print(json.dumps({"rows": len(rows), "total": sum(row[1] for row in rows)}))
            return
        found = measure(given.records, given.runs, lambda: run_once(driver, graph))
        found["worker_mib"] = peak_worker_mib()
    if given.memory:
        found |= {"value": found["worker_mib"], "unit": "MiB", "records_per_s": found["value"]}
    report(found)


if __name__ == "__main__":
    main()
