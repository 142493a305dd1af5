"""What a stage's function returns, held against what the stage declares.

Owner: the thread of a stage. Columns are told by name and type; whether they may be null does not matter. Must not run
anything on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from yarrow.common.pipelines.column_text import Column, quoted
from yarrow.common.pipelines.stage import Stage
from yarrow.common.pipelines.stage_data import StageTable
from yarrow.runtime.common.errors import YarrowError


class StageResultError(YarrowError):
    """A stage has returned something else than it declares; the message names stage, output and remedy."""


def tables_of(stage: Stage, returned: Any) -> dict[str, DataFrame]:
    """The DataFrame of each table that the stage declares, its columns in the declared order.

    Raises StageResultError.
    """
    declared = {output.name: output for output in stage.outputs if isinstance(output, StageTable)}
    frames = _by_name(stage, returned, declared)
    return {name: _fitting(stage, table, frames[name]) for name, table in declared.items()}


def _by_name(stage: Stage, returned: Any, declared: Mapping[str, StageTable]) -> Mapping[str, Any]:
    who = f"Stage {stage.name!r}: its function"
    if not declared:
        if returned is not None:
            raise StageResultError(
                f"{who} returned {_kind(returned)}, and the stage declares no table: declare a StageTable, or return"
                " nothing"
            )
        return {}
    names = ", ".join(repr(name) for name in declared)
    if isinstance(returned, Mapping):
        missing = [name for name in declared if name not in returned]
        if missing:
            raise StageResultError(f"{who} returned no DataFrame for {missing[0]!r}: it declares {names}")
        more = [name for name in returned if name not in declared]
        if more:
            raise StageResultError(
                f"{who} returned {more[0]!r}, which the stage does not declare: it declares {names}"
            )
        return returned
    if len(declared) == 1:
        return dict.fromkeys(declared, returned)
    raise StageResultError(
        f"{who} returned {_kind(returned)}: return a dict with a DataFrame for each of {names}"
    )


def _fitting(stage: Stage, table: StageTable, frame: Any) -> DataFrame:
    who = f"Stage {stage.name!r}: its function"
    if not isinstance(frame, DataFrame):
        raise StageResultError(
            f"{who} returned {_kind(frame)} for {table.name!r}: return a DataFrame with the columns {table.schema}"
        )
    # Names of columns differ in more than their case where Spark is asked to tell it.
    found = {field.name.lower(): Column(field.name, field.dataType.simpleString()) for field in frame.schema}
    has = f"It has: {', '.join(map(str, found.values())) or 'no columns'}."
    what = f"{who} returned a DataFrame for {table.name!r}"
    if len(found) < len(frame.columns):
        raise StageResultError(f"{what} that has a column twice. {has}")
    for column in table.columns:
        own = found.get(column.name.lower())
        if own is None:
            raise StageResultError(f"{what} that lacks the column {column}. {has}")
        if own.type != column.type:
            raise StageResultError(
                f"{what} whose column {quoted(column.name)} is {own.type}, and not {column.type} as declared. {has}"
                " Cast the column, or declare its type."
            )
    names = [column.name for column in table.columns]
    more = found.keys() - {name.lower() for name in names}
    if more:
        first = next(column for name, column in found.items() if name in more)
        raise StageResultError(f"{what} with the column {first}, which is not declared. {has}")
    return frame.select(*(frame[quoted(found[name.lower()].name)].alias(name) for name in names))


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of {type(value).__module__}.{type(value).__qualname__}"
