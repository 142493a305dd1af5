"""Fields that a source adds to the records of a program's schema: refused where a sink would not write them.

Owner: the thread that builds the program. A sink is asked for records that reach it as the source has made them. Behind
an operator that makes records of its own, the operator decides which fields they have.
"""

from __future__ import annotations

from yarrow.datastream.connectors.base import Sink
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.transformations import (
    SideOutputTransformation,
    SourceTransformation,
    SpecTransformation,
    Transformation,
)


def refuse_added_columns(read: Transformation, sink: Sink[object]) -> None:
    """Raise InvalidProgramError, naming source and sink, if records may have fields that the sink does not write."""
    if sink.takes_added_columns:
        return
    source = _adding(read, set())
    if source is not None:
        name = type(sink).__name__
        raise InvalidProgramError(
            f"source '{source.name}' gives records fields that its schema lacks (evolution=\"add\"), and {name} cannot"
            f' add columns. Take evolution="keep", or make records with the fields of {name} by a map before it. A sink'
            " or schema of your own that writes any field says so by takes_added_columns = True"
        )


def _adding(read: Transformation, seen: set[int]) -> SourceTransformation | None:
    """The first source whose records come here with more fields; None = there is none."""
    if read.id in seen or isinstance(read, SideOutputTransformation):
        return None
    seen.add(read.id)
    if isinstance(read, SourceTransformation):
        return read if read.adds_columns else None
    if isinstance(read, SpecTransformation) and not read.spec.keeps_rows:
        return None
    return next((found for each in read.inputs if (found := _adding(each, seen)) is not None), None)
