"""What of Spark's words about a file reaches the user; types of columns for a scan."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from yarrow.container.batch.spark.sql_frames import spark_type, unread_file

SAID = """An error occurred while calling o214.collectToPython.
: Error: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a b/1.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:856)
Caused by: java.io.IOException: can not read class PageHeader: don't know what type: 15
\tat org.apache.parquet.format.Util.read(Util.java:389)
Caused by: shaded.TProtocolException: don't know what type: 15
"""


def test_the_file_and_the_last_cause_are_told() -> None:
    assert unread_file(SAID) == "file:///a b/1.parquet (don't know what type: 15)"
    assert unread_file(SAID.partition("Caused by")[0]) == "file:///a b/1.parquet"
    assert unread_file("org.apache.spark.SparkException: Job aborted.") is None


def test_columns_get_types_that_hold_their_values() -> None:
    assert spark_type(pa.uint32()) == T.LongType()
    assert spark_type(pa.dictionary(pa.int8(), pa.string())) == T.StringType()
    assert spark_type(pa.timestamp("us", "UTC")) == T.TimestampType()
    assert spark_type(pa.timestamp("us")) == T.TimestampNTZType()
    with pytest.raises(KeyError):
        spark_type(pa.uint64())
