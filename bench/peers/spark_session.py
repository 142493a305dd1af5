"""The Spark session of the peers: two cores, and Spark's own defaults but for addresses and partitions."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """A session that ends with the block.

    Two partitions behind a shuffle of DataFrames, as the engine has: 200 small ones, Spark's default, cost more.
    """
    builder = SparkSession.builder.appName(name).master("local[2]")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    # Else Spark takes the first python3 on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
