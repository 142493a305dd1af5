"""Savepoints as DataFrames of PySpark, both ways: the same tables as those of `yarrow.state_processor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yarrow.runtime.common.public_names import loading

if TYPE_CHECKING:
    from yarrow.state_processor.spark.dataframe_transformation import DataFrameTransformation
    from yarrow.state_processor.spark.savepoint_dataframes import SavepointDataFrames
    from yarrow.state_processor.spark.savepoint_source import FORMAT, register

__all__ = ["FORMAT", "DataFrameTransformation", "SavepointDataFrames", "register"]

#: The module of each name: what a program does not use, it does not load. So do tasks of Spark, which start often.
_MODULES: Final = {
    "DataFrameTransformation": "dataframe_transformation",
    "SavepointDataFrames": "savepoint_dataframes",
    "FORMAT": "savepoint_source",
    "register": "savepoint_source",
}

__getattr__ = loading(__name__, _MODULES)
