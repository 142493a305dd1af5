"""Functions that combine many values: reduce and aggregate.

Interfaces alone; called by the thread that owns the task, for running results, windows and state. They hold no value
between two calls: the runtime keeps what they return.
"""

from __future__ import annotations

from typing import TypeVar

from yarrow.datastream.functions.function import Function
from yarrow.datastream.state.descriptors import _CallableReduceFunction
from yarrow.datastream.state.folding import Aggregation, Reduction

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
T = TypeVar("T")


class ReduceFunction(Function, Reduction[T]):
    """Combines two values into one of the same type; must be associative.

    A ReduceFunction of `KeyedStream.reduce` may use keyed state that it takes in `open`: the state of the current
    key. As the function of a ReducingState it has no runtime context.
    """


class AggregateFunction(Function, Aggregation[IN, ACC, OUT]):
    """Adds values to an accumulator and makes a result of the accumulator."""


# Programs may take the function out of a descriptor, and ask whether it is a ReduceFunction.
ReduceFunction.register(_CallableReduceFunction)
