"""Names of what operators take and compute: forms of row functions, built-in aggregates, containers of columns.

Owner: none (values). Operator specs hold these names, so that savepoints and plans contain them.
"""

from __future__ import annotations

from enum import StrEnum


class BatchContainer(StrEnum):
    """The container that a columnar user function receives and returns; PYARROW is a RecordBatch."""

    PYARROW = "pyarrow"
    PYARROW_TABLE = "pyarrow_table"
    POLARS = "polars"
    PANDAS = "pandas"


class RowShape(StrEnum):
    """Forms of stateless one-input row functions, which the chain compiler fuses."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"


class CoShape(StrEnum):
    """Forms of stateless two-input row functions."""

    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"


class AggregateKind(StrEnum):
    """Built-in running aggregates."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MIN_BY = "min_by"
    MAX_BY = "max_by"
    COUNT = "count"
    MEAN = "mean"
