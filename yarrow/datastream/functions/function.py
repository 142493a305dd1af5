"""Function, the base of all user functions, and the contexts of `open`.

Interfaces alone; the runtime implements the contexts. Used by the thread that owns the task. They do not know which
kinds of functions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from yarrow.common.accumulators import Accumulator
from yarrow.common.configuration import Configuration
from yarrow.common.job_id import JobID
from yarrow.common.metrics import MetricGroup

if TYPE_CHECKING:
    from yarrow.datastream.functions.distributed_cache import DistributedCache
    from yarrow.datastream.functions.iteration_functions import IterationRuntimeContext
    from yarrow.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class KeyedStateStore(ABC):
    """Gives access to keyed state: each handle reads and writes the value of the current key.

    A second state of the same name with another kind or type is refused; the error names both.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Return the handle of a single value."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the handle of a list."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return the handle of a map."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Return the handle of a value into which all added values are reduced."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[IN, ACC, OUT]
    ) -> AggregatingState[IN, OUT]:
        """Return the handle of an aggregate."""


class RuntimeContext(KeyedStateStore):
    """The facts that a function can ask for about its task, its state, metrics and accumulators."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job."""

    @abstractmethod
    def get_job_name(self) -> str:
        """Return the name of the job."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the task."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the max parallelism, which is the number of key groups."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the task."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the place of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return how often this subtask was started before; 0 at first."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the task's name with `(place from 1/parallelism)#attempt` after it."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter, or the default."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the metric group of the operator."""

    @abstractmethod
    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """Add an accumulator. Raises ValueError when the subtask has one of this name."""

    @abstractmethod
    def get_accumulator(self, name: str) -> Accumulator[Any, Any]:
        """Return an accumulator that this subtask added. Raises KeyError when it added none of this name."""

    @abstractmethod
    def get_distributed_cache(self) -> DistributedCache:
        """Return the files that the program has registered by `register_cached_file`."""

    def get_iteration_runtime_context(self) -> IterationRuntimeContext:
        """Return the context of the superstep. Raises RuntimeError for a function outside of an iteration."""
        raise RuntimeError("the function is no part of an iteration, so there is no superstep")

    def get_parameters(self) -> Configuration:
        """Return the Configuration that `DataSet.with_parameters` gave the function; an empty one otherwise."""
        return Configuration()

    def has_broadcast_variable(self, name: str) -> bool:
        """Whether the operator has a broadcast variable of that name: `DataSet.with_broadcast_set` gives it one."""
        return False

    def get_broadcast_variable(self, name: str) -> list[Any]:
        """Return the rows of a broadcast variable, which nobody may change. Raises KeyError if there is none."""
        raise KeyError(f"only operators of a DataSet program have broadcast variables; asked for {name!r}")

    def get_broadcast_variable_with_initializer(self, name: str, initializer: Any) -> Any:
        """Return the form that a BroadcastVariableInitializer, or a callable, makes of a broadcast variable.

        It is made once a task. Raises KeyError if there is no variable of that name.
        """
        raise KeyError(f"only operators of a DataSet program have broadcast variables; asked for {name!r}")


class Function(ABC):  # noqa: B024 - both methods are optional, subclasses add the abstract ones
    """The base of all user functions."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027
        """Prepare; called once before the first record of each attempt."""

    def close(self) -> None:  # noqa: B027
        """Release what `open` acquired; called once at the end of each attempt, also after a failure."""
