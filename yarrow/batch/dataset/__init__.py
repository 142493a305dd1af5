"""The DataSet API of Flink 1.x for bounded programs, in snake_case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yarrow.runtime.common.public_names import loading

if TYPE_CHECKING:
    from yarrow.batch.dataset.aggregations import Aggregations
    from yarrow.batch.dataset.data_set import (
        AggregatedDataSet,
        CsvReader,
        CustomUnaryOperation,
        DataSet,
        DeltaIteration,
        ExecutionEnvironment,
        IterativeDataSet,
        SortedGrouping,
        UnsortedGrouping,
    )
    from yarrow.batch.dataset.data_set_ends import DataSink
    from yarrow.batch.dataset.data_set_utils import DataSetUtils
    from yarrow.batch.dataset.order import Order
    from yarrow.batch.dataset.output.file_output import WriteMode

__all__ = [
    "AggregatedDataSet",
    "Aggregations",
    "CsvReader",
    "CustomUnaryOperation",
    "DataSet",
    "DataSetUtils",
    "DataSink",
    "DeltaIteration",
    "ExecutionEnvironment",
    "IterativeDataSet",
    "Order",
    "SortedGrouping",
    "UnsortedGrouping",
    "WriteMode",
]

#: The module of each name: what a program does not use, it does not load.
_MODULES: Final = {
    "AggregatedDataSet": "data_set",
    "Aggregations": "aggregations",
    "CsvReader": "data_set",
    "CustomUnaryOperation": "data_set",
    "DataSet": "data_set",
    "DataSetUtils": "data_set_utils",
    "DataSink": "data_set_ends",
    "DeltaIteration": "data_set",
    "ExecutionEnvironment": "data_set",
    "IterativeDataSet": "data_set",
    "Order": "order",
    "SortedGrouping": "data_set",
    "UnsortedGrouping": "data_set",
    "WriteMode": "output.file_output",
}

__getattr__ = loading(__name__, _MODULES)
