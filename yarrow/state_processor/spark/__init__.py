"""Savepoints as DataFrames of PySpark, both ways: the same tables as those of `yarrow.state_processor`."""

from yarrow.state_processor.spark.dataframe_transformation import DataFrameTransformation
from yarrow.state_processor.spark.savepoint_dataframes import SavepointDataFrames
from yarrow.state_processor.spark.savepoint_source import FORMAT, register

__all__ = ["FORMAT", "DataFrameTransformation", "SavepointDataFrames", "register"]
