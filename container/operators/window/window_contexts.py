"""What assigners, triggers, evictors and window functions can ask for: clocks, timers and state of a key and window.

Owner: the task thread. One object serves all calls of a subtask: the operator sets its window before each. Must not
decide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from yarrow.common.metrics import MetricGroup
from yarrow.container.operators.window.window_states import WindowStates
from yarrow.container.operators.window.window_timers import WindowTimers
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.datastream.functions import (
    KeyedStateStore,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from yarrow.datastream.state import StateDescriptor
from yarrow.datastream.window import Evictor, Trigger, WindowAssigner
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.window_forms import WindowForm

#: Beginnings of the names of states by window.
TRIGGER_STATE = "_trigger/"
FUNCTION_STATE = "_window/"


class AssignerContext(WindowAssigner.WindowAssignerContext):
    """The context of an assigner."""

    def __init__(self, timers: WindowTimers, runtime_context: RuntimeContext) -> None:
        self._timers = timers
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class _ClocksAndMetrics:
    """What triggers and evictors can both ask for."""

    def __init__(self, timers: WindowTimers, metric_group: MetricGroup) -> None:
        self._timers = timers
        self._metric_group = metric_group

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def get_current_watermark(self) -> int:
        return self._timers.watermark

    def get_metric_group(self) -> MetricGroup:
        return self._metric_group


class WindowTriggerContext(_ClocksAndMetrics, Trigger.OnMergeContext):
    """The context of a trigger; `merged` holds the windows that have merged into `window` while it hears of it."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        timers: WindowTimers,
        form: WindowForm[Any],
        metric_group: MetricGroup,
        restored: Set[str],
        on_first_use: Callable[[WindowValues[Any]], None],
    ) -> None:
        """`restored`: names of the keyed states with which the operator begins. `on_first_use`: see WindowStates."""
        super().__init__(timers, metric_group)
        self.window: Any = None
        self.merged: Sequence[Any] = ()
        self._form = form
        #: A window whose stored form is known, with that form.
        self._known: Any = None
        self._stored: Any = None
        self.states = WindowStates(backend, form, TRIGGER_STATE, self, restored, on_first_use)

    @property
    def namespace(self) -> Any:
        """The namespace of the window's timers."""
        if self._known is not self.window:
            self._known, self._stored = self.window, self._form.stored(self.window)
        return self._stored

    def enter(self, window: Any, stored: Any) -> None:
        """Sets the window and its stored form."""
        self.window = self._known = window
        self._stored = stored

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.set_processing_timer(time, self.namespace)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.set_event_timer(time, self.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete_processing_timer(time, self.namespace)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete_event_timer(time, self.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self.states.of_descriptor(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self.states.merge(state_descriptor, self.merged)


class WindowEvictorContext(_ClocksAndMetrics, Evictor.EvictorContext):
    """The context of an evictor."""


class WindowFunctionContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The context of a process function of windows."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        timers: WindowTimers,
        form: WindowForm[Any],
        runtime_context: RuntimeContext,
        restored: Set[str],
        *,
        merging: bool,
    ) -> None:
        """`restored`: names of the keyed states with which the operator begins.

        `merging`: windows may merge, so that they have no state of their own.
        """
        self.window_at_hand: Any = None
        self._timers = timers
        self._runtime_context = runtime_context
        self._merging = merging
        self.states = WindowStates(backend, form, FUNCTION_STATE, _Place(self), restored)

    def window(self) -> Any:
        return self.window_at_hand

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.watermark

    def window_state(self) -> KeyedStateStore:
        if self._merging:
            raise InvalidProgramError(
                "window_state: windows that merge have no state of their own, because nobody knows how it merges."
                " Use global_state, or an assigner whose windows do not merge"
            )
        return self.states

    def global_state(self) -> KeyedStateStore:
        return self._runtime_context


class _Place:
    """The window of a context whose method `window` has the name that a place needs."""

    def __init__(self, context: WindowFunctionContext) -> None:
        self._context = context

    @property
    def window(self) -> Any:
        return self._context.window_at_hand
