"""The functions of DataSet programs, besides those that DataStream programs have, too.

Interfaces alone; called by the thread that owns the task. Functions that may give several results return an iterable
or are generators; None is no result. Nothing here executes anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from yarrow.datastream.functions.aggregate_functions import ReduceFunction
from yarrow.datastream.functions.function import Function, RuntimeContext
from yarrow.datastream.functions.iteration_functions import IterationRuntimeContext
from yarrow.datastream.functions.map_functions import FilterFunction, FlatMapFunction, MapFunction

IN = TypeVar("IN")
OUT = TypeVar("OUT")
T = TypeVar("T")


class RichFunction(Function):
    """A function that can ask for its runtime context at any time between `open` and `close`."""

    _runtime_context: RuntimeContext | None = None

    def get_runtime_context(self) -> RuntimeContext:
        """Return the context of the task. Raises RuntimeError before the function is opened."""
        if self._runtime_context is None:
            raise RuntimeError("the function has no runtime context yet: ask for it in open() or later")
        return self._runtime_context

    def get_iteration_runtime_context(self) -> IterationRuntimeContext:
        """Return the context of the superstep. Raises RuntimeError for a function outside of an iteration."""
        return self.get_runtime_context().get_iteration_runtime_context()

    def set_runtime_context(self, runtime_context: RuntimeContext) -> None:
        """Set the context; the engine does so before `open`."""
        self._runtime_context = runtime_context

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_runtime_context"}


class MapPartitionFunction(Function, Generic[IN, OUT]):
    """Any number of results for all records of a partition."""

    @abstractmethod
    def map_partition(self, values: Iterator[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of the partition; None is no result."""


class GroupReduceFunction(Function, Generic[IN, OUT]):
    """Any number of results for all records of a group."""

    @abstractmethod
    def reduce(self, values: Iterator[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a group; None is no result."""


class GroupCombineFunction(Function, Generic[IN, OUT]):
    """Any number of partial results for some records of a group.

    A GroupReduceFunction that is one of these, too, combines records before they are shuffled. Its partial results
    are then of the type of its input.
    """

    @abstractmethod
    def combine(self, values: Iterator[IN]) -> Iterable[OUT] | None:
        """Return or yield the partial results of some records of a group; None is no result."""


class RichMapFunction(RichFunction, MapFunction[IN, OUT]):
    """A MapFunction with a runtime context."""


class RichFlatMapFunction(RichFunction, FlatMapFunction[IN, OUT]):
    """A FlatMapFunction with a runtime context."""


class RichFilterFunction(RichFunction, FilterFunction[IN]):
    """A FilterFunction with a runtime context."""


class RichReduceFunction(RichFunction, ReduceFunction[T]):
    """A ReduceFunction with a runtime context."""


class RichMapPartitionFunction(RichFunction, MapPartitionFunction[IN, OUT]):
    """A MapPartitionFunction with a runtime context."""


class RichGroupReduceFunction(RichFunction, GroupReduceFunction[IN, OUT]):
    """A GroupReduceFunction with a runtime context."""


class RichGroupCombineFunction(RichFunction, GroupCombineFunction[IN, OUT]):
    """A GroupCombineFunction with a runtime context."""


class BroadcastVariableInitializer(Generic[IN, OUT]):
    """Makes another form of a broadcast variable, once a task."""

    @abstractmethod
    def initialize_broadcast_variable(self, data: Iterable[IN]) -> OUT:
        """Return the form in which the function takes the variable."""
