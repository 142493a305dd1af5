"""Puts a pre-aggregation between a stream and its windows: an operator of each subtask, in front of the exchange.

Owner: the thread that builds the program. Must not know assigners, triggers or functions of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.program.graph_builder import GraphBuilder
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.graph.transformations import (
    OneInputTransformation,
    PartitionTransformation,
    Transformation,
    UnionTransformation,
    operator_behind,
)
from yarrow.runtime.graph.window_spec import PreAggregationOperator

#: The name of the operator in plans and metrics.
NAME: Final = "PreAggregation"
#: The key of a triple that the operator emits.
KEY_OF_TRIPLE: Final = itemgetter(0)


def pre_aggregation(
    builder: GraphBuilder,
    keyed: Transformation,
    spec: PreAggregationOperator,
    types: Sequence[TypeInformation | None],
    description: str,
    *,
    blocking: bool,
) -> tuple[OneInputTransformation, PartitionTransformation]:
    """The pre-aggregation of a keyed stream, and its triples distributed by key.

    `types` are those of key, partial value and row; None = not declared. The operator has the parallelism of the one
    before it, and is chained to that.
    """
    read = _undistributed(builder, keyed)
    before = operator_behind(read)
    triple = Types.TUPLE([Types.PICKLED_BYTE_ARRAY() if each is None else each for each in types])
    made = builder.one_input(
        read,
        NAME,
        spec,
        output_type=triple,
        blocking=blocking,
        description=description,
        parallelism_like=before,
    )
    selector = builder.pickle(KEY_OF_TRIPLE, NAME, "key selector")
    by_key = PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=selector)
    return made, builder.partition(made, by_key)


def _undistributed(builder: GraphBuilder, read: Transformation) -> Transformation:
    """The records in front of all distributions, of which the one by key has replaced the others."""
    while isinstance(read, PartitionTransformation):
        read = read.read
    if isinstance(read, UnionTransformation) and any(
        isinstance(part, PartitionTransformation) for part in read.reads
    ):
        return builder.partition(read, PartitionerSpec(kind=PartitionerKind.REBALANCE))
    return read
