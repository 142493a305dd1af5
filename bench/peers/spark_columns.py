"""The columnar bounded programs in plain PySpark: DataFrames over the same Parquet files, the same query several times.

`--mapped` puts the same user function before the aggregate, by mapInArrow. `--check` collects the results of one run
and prints them in short. Started as `python -m bench.peers.spark_columns` from the root of the checkout.
"""

from __future__ import annotations

import argparse
import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.peers.spark_session import spark_session
from bench.programs import batch_functions as functions
from bench.programs.batch_files import parquet_folder
from bench.repeated_runs import measure, report

_COLUMNS = "k bigint, v bigint, w double"


def results(session: SparkSession, folder: str, *, mapped: bool) -> DataFrame:
    """The sum of v, the maximum of w and the number of rows, by k."""
    files = session.read.parquet(folder)
    if mapped:
        files = files.mapInArrow(functions.weighted_batches, _COLUMNS)
    return files.groupBy("k").agg(F.sum("v"), F.max("w"), F.count("*"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--mapped", action="store_true", help="a user's function before the aggregate")
    arguments.add_argument("--runs", type=int, default=2)
    arguments.add_argument("--check", action="store_true", help="collect the results of one run")
    given = arguments.parse_args()
    folder = str(parquet_folder(given.records))
    with spark_session("bench columns") as session:
        if given.check:
            rows = results(session, folder, mapped=given.mapped).collect()
            print(json.dumps({"rows": len(rows), "total": sum(row[1] for row in rows)}))
            return

        def run() -> None:
            results(session, folder, mapped=given.mapped).write.format("noop").mode("overwrite").save()

        found = measure(given.records, given.runs, run)
    report(found)


if __name__ == "__main__":
    main()
