"""Savepoints as DataFrames of PySpark, both ways: the same tables as those of `yarrow.state_processor`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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


def __getattr__(name: str) -> Any:
    """Loads the module of a public name when it is first asked for."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
