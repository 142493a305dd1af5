"""The RuntimeContext that user functions get: job and task facts, keyed state, metrics, accumulators.

Owner: the task thread. Keyed state comes from the operator's state backend; a stream without keys refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from yarrow.common.accumulators import Accumulator
from yarrow.common.configuration import Configuration
from yarrow.common.job_id import JobID
from yarrow.common.metrics import MetricGroup
from yarrow.container.codegen.user_functions import close_function, load_function, open_function
from yarrow.container.operators.base import OperatorContext
from yarrow.datastream.functions import RuntimeContext
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
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.config.settings import Settings

if TYPE_CHECKING:
    from yarrow.datastream.functions.distributed_cache import DistributedCache


class BroadcastVariable:
    """The rows of a broadcast input, and the form that the function's initializer has made of them."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._initialized: tuple[Any] | None = None

    def initialized(self, initializer: Any) -> Any:
        """The form of the first initializer that asked; a callable may stand for one."""
        if self._initialized is None:
            make = getattr(initializer, "initialize_broadcast_variable", initializer)
            self._initialized = (make(self.rows),)
        return self._initialized[0]


class OperatorRuntimeContext(RuntimeContext):
    """The context of one operator's subtask; `keyed` says whether it has keyed state."""

    def __init__(
        self,
        context: OperatorContext,
        keyed: bool,
        broadcast_variables: Mapping[str, BroadcastVariable] = MappingProxyType({}),
        parameters: bytes | None = None,
    ) -> None:
        """`parameters`: the pickled Configuration of the function; None = an empty one."""
        self._parameters = parameters
        self._broadcast_variables = broadcast_variables
        self._context = context
        self._environment = context.environment
        self._keyed = keyed
        #: Keyed state was requested: callers of the function must set the record's key as the current one.
        self.has_keyed_state = False
        #: Opened functions of reducing and aggregating states, by the name of the state.
        self._state_functions: dict[str, Any] = {}

    def get_job_id(self) -> JobID:
        return JobID(self._environment.job_id)

    def get_job_name(self) -> str:
        return self._environment.job_name

    def get_task_name(self) -> str:
        return self._environment.task_name

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._environment.max_parallelism

    def get_number_of_parallel_subtasks(self) -> int:
        return self._environment.parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._environment.subtask

    def get_attempt_number(self) -> int:
        return self._environment.attempt_number

    def get_task_name_with_subtasks(self) -> str:
        env = self._environment
        return f"{env.task_name} ({env.subtask + 1}/{env.parallelism})#{env.attempt_number}"

    def get_distributed_cache(self) -> DistributedCache:
        # Imported late: most functions open no cached file.
        from yarrow.datastream.functions.distributed_cache import DistributedCache

        return DistributedCache(self._environment.cached_files)

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._job_parameters.get(key, default_value)

    @cached_property
    def _job_parameters(self) -> Mapping[str, str]:
        """The program's own parameters, over the rest of the job's configuration."""
        configuration = self._environment.configuration
        parameters = Settings(configuration).get(pipeline.GLOBAL_JOB_PARAMETERS)
        return {**configuration, **(parameters or {})}

    def get_metrics_group(self) -> MetricGroup:
        return self._context.metric_group

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        if name in self._environment.accumulators:
            raise ValueError(f"this subtask has an accumulator '{name}' already; choose another name")
        self._environment.accumulators[name] = accumulator

    def get_accumulator(self, name: str) -> Accumulator[Any, Any]:
        return self._environment.accumulators[name]

    def get_iteration_runtime_context(self) -> IterationRuntimeContext:
        superstep = self._environment.superstep
        return super().get_iteration_runtime_context() if superstep is None else superstep

    def get_parameters(self) -> Configuration:
        if self._parameters is None:
            return super().get_parameters()
        parameters: Configuration = load_function(self._parameters, self._context.descriptor.name)
        return parameters

    def has_broadcast_variable(self, name: str) -> bool:
        return name in self._broadcast_variables

    def get_broadcast_variable(self, name: str) -> list[Any]:
        return self._broadcast_variable(name).rows

    def get_broadcast_variable_with_initializer(self, name: str, initializer: Any) -> Any:
        return self._broadcast_variable(name).initialized(initializer)

    def _broadcast_variable(self, name: str) -> BroadcastVariable:
        found = self._broadcast_variables.get(name)
        if found is None:
            known = ", ".join(map(repr, self._broadcast_variables)) or "none"
            raise KeyError(
                f"operator '{self._context.descriptor.name}' has no broadcast variable {name!r}, it has: {known}; name "
                f"it behind the operator: with_broadcast_set(data_set, {name!r})"
            )
        return found

    # ------------------------------------------------------------------ state

    def get_state(self, state_descriptor: ValueStateDescriptor[Any]) -> ValueState[Any]:
        self._require_keyed(state_descriptor)
        return self._context.state.value_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        self._require_keyed(state_descriptor)
        return self._context.state.list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> MapState[Any, Any]:
        self._require_keyed(state_descriptor)
        return self._context.state.map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[Any]) -> ReducingState[Any]:
        self._require_keyed(state_descriptor)
        self._open_once(state_descriptor, state_descriptor.get_reduce_function())
        return self._context.state.reducing_state(state_descriptor)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[Any, Any, Any]
    ) -> AggregatingState[Any, Any]:
        self._require_keyed(state_descriptor)
        self._open_once(state_descriptor, state_descriptor.get_agg_function())
        return self._context.state.aggregating_state(state_descriptor)

    def _open_once(self, descriptor: StateDescriptor, function: Any) -> None:
        """Opens the function of a state; only the state's first descriptor counts."""
        name = descriptor.get_name()
        if name not in self._state_functions:
            self._state_functions[name] = function
            open_function(function, _StateFunctionContext(self._context, name))

    def close_state_functions(self) -> None:
        """Closes the functions of reducing and aggregating states."""
        functions, self._state_functions = self._state_functions, {}
        for function in functions.values():
            close_function(function)

    def _require_keyed(self, descriptor: StateDescriptor) -> None:
        if not self._keyed:
            raise UnsupportedFeatureError(
                f"operator '{self._context.descriptor.name}': keyed state '{descriptor.get_name()}' needs a keyed "
                "stream; call key_by before this operator"
            )
        self.has_keyed_state = True


class _StateFunctionContext(OperatorRuntimeContext):
    """The context of a reducing or aggregating state's function: as in Flink, it has no runtime context."""

    def __init__(self, context: OperatorContext, state: str) -> None:
        super().__init__(context, keyed=False)
        self._state = state

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name == "has_keyed_state":
            return super().__getattribute__(name)
        raise UnsupportedFeatureError(
            f"operator '{self._context.descriptor.name}': the function of state '{self._state}' called {name}."
            " Functions of reducing and aggregating states have no runtime context; use that of the function"
            " with the state"
        )
