"""A real Spark reads the folder of a DeadLetterTable as one table, with the column of its days."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.support.spark_session import spark_session
from yarrow.common.typeinfo import Types
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.dead_letter_table import DeadLetterTable
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.spark


def fails_at_tens(value: int) -> int:
    if value % 10 == 3:
        raise ValueError(f"no {value}")
    return value


def test_spark_reads_letters_by_columns(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    numbers = env.from_sequence(1, 100).map(lambda number: number, Types.LONG())
    parsed = numbers.map(fails_at_tens, Types.LONG()).uid("parse").on_error("dead_letter")
    parsed.dead_letters().sink_to(DeadLetterTable(str(tmp_path / "letters")))
    with mini_cluster(processes=False):
        env.execute("letters to a table")
    with spark_session(tmp_path / "spark", "letters", {"spark.sql.session.timeZone": "UTC"}) as spark:
        table = spark.read.parquet(str(tmp_path / "letters"))
        table.createOrReplaceTempView("letters")
        rows = spark.sql(
            "SELECT error, day, CAST(failed_at AS DATE) AS failed_on, input + 1 AS next FROM letters"
            " WHERE operator = 'parse' AND error_class = 'ValueError' AND system IS NULL ORDER BY failed_at"
        ).collect()
    assert sorted(row.error for row in rows) == sorted(f"ValueError: no {n}" for n in range(3, 101, 10))
    for row in rows:
        assert isinstance(row.day, date) and row.day == row.failed_on and row.next == 1
