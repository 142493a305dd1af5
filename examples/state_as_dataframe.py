"""A savepoint made of a DataFrame of PySpark, and read back as one: accounts and their balances from a history.

Run it with `python examples/state_as_dataframe.py`; no cluster is needed. Spark's tasks run this Python.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from yarrow.common import Types
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.state_processor import SavepointWriter
from yarrow.state_processor.spark import DataFrameTransformation, SavepointDataFrames

BALANCE: ValueStateDescriptor[int] = ValueStateDescriptor("balance", Types.LONG())
HISTORY = [("ann", 700), ("bob", -30), ("ann", 325), ("cid", 5)]


def write(history: DataFrame, path: str) -> str:
    """A savepoint with the balance of each account, for the operator with the uid `totals`."""
    balances = history.groupBy("account").agg(F.sum("amount").alias("balance"))
    rows = DataFrameTransformation.bootstrap_with(balances).key_by("account")
    writer = SavepointWriter.new_savepoint(max_parallelism=128)
    return writer.with_operator("totals", rows.to_state(BALANCE, "balance")).write(path)


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        path = write(session.createDataFrame(HISTORY, "account string, amount bigint"), f"{folder}/savepoint")
        balances = SavepointDataFrames.read(session, path).read_keyed_state("totals", "balance")
        print(sorted(tuple(row) for row in balances.where("value > 0").collect()))
    session.stop()


if __name__ == "__main__":
    main()
