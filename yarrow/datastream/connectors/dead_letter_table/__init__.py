"""The table of dead letters: a folder of Parquet files by day, which Spark SQL, Hive and pyarrow read by columns."""

from yarrow.datastream.connectors.dead_letter_table.dead_letter_table import DeadLetterTable

__all__ = ["DeadLetterTable"]
