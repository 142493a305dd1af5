"""Runs a KeyedStateReaderFunction over all keys of an operator, some key groups at a time.

Owner: the calling thread. One part of the key groups after the other is restored into a heap backend, as the
operator itself would restore it. So the function sees the states' own handles. It must not know tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from yarrow.container.codegen.user_functions import close_function, open_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.process.process_function import EVENT_TIMERS, PROCESSING_TIMERS
from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.container.state.backend import Timer
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.keys import user_key
from yarrow.runtime.snapshot.handles import InlineStateHandle, KeyGroupsSnapshot, OperatorState, StateHandle
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.functions import KeyedStateReaderFunction
from yarrow.state_processor.stored_state import CanonicalPart, refuse_pickles
from yarrow.state_processor.subtasks import operator_context, state_without_checkpoint

#: Bytes of stored state that are restored at a time, as far as key groups allow.
_AT_ONCE: Final = 32 << 20


class _Timers:
    """A TimerSection that only keeps the restored timers."""

    def __init__(self) -> None:
        self.by_key: defaultdict[Any, list[int]] = defaultdict(list)

    def snapshot_timers(self) -> Collection[Timer]:
        return ()

    def restore_timers(self, timers: Iterable[Timer]) -> None:
        for timer in timers:
            self.by_key[timer.key].append(timer.timestamp)


class _KeyContext(KeyedStateReaderFunction.Context):
    """The context of the current key."""

    def __init__(self, event: _Timers, processing: _Timers) -> None:
        self._event = event
        self._processing = processing
        self.key: Any = None

    def registered_event_time_timers(self) -> list[int]:
        return sorted(self._event.by_key.get(self.key, ()))

    def registered_processing_time_timers(self) -> list[int]:
        return sorted(self._processing.by_key.get(self.key, ()))


def read_keys(
    operator: OperatorState,
    job_id: JobID,
    parts: Sequence[CanonicalPart],
    function: KeyedStateReaderFunction[Any, Any],
    *,
    trusted: bool,
) -> Iterator[Any]:
    """The results of the function for each key, in the order of key groups."""
    if not trusted:
        for part in parts:
            for meta in part.states:
                refuse_pickles(meta, operator.name)
    for groups in _divided(parts, operator.max_parallelism):
        yield from _read_groups(operator, job_id, parts, function, groups, trusted)


def _divided(parts: Sequence[CanonicalPart], max_parallelism: int) -> Iterator[KeyGroupRange]:
    """All key groups, in ranges of about `_AT_ONCE` bytes."""
    sizes = [0] * max_parallelism
    for part in parts:
        for run in part.runs():
            sizes[run.key_group] += len(run.keys) + len(run.values)
    start = size = 0
    for group, more in enumerate(sizes):
        if size and size + more > _AT_ONCE:
            yield KeyGroupRange(start, group - 1)
            start, size = group, 0
        size += more
    if size:
        yield KeyGroupRange(start, max_parallelism - 1)


def _read_groups(
    operator: OperatorState,
    job_id: JobID,
    parts: Sequence[CanonicalPart],
    function: KeyedStateReaderFunction[Any, Any],
    groups: KeyGroupRange,
    trusted: bool,
) -> Iterator[Any]:
    handles = [
        KeyGroupsSnapshot(
            key_groups=part.key_groups,
            states=part.states,
            handle=InlineStateHandle(data=number.to_bytes(4, "big")),
        )
        for number, part in enumerate(parts)
    ]
    data = {handle.handle: part.data for handle, part in zip(handles, parts, strict=True)}

    def read(handle: StateHandle) -> bytes:
        return data[handle]  # type: ignore[return-value]  # a view of a mapped file is read as bytes are

    restored = state_without_checkpoint(operator.operator_id, keyed=handles, read=read, trusted=trusted)
    with operator_context(
        operator.operator_id,
        operator.name,
        job_id,
        max_parallelism=operator.max_parallelism,
        restored=restored,
        key_groups=groups,
    ) as context:
        yield from _rows_of_keys(operator, context, function, restores=bool(parts))


def _rows_of_keys(
    operator: OperatorState,
    context: OperatorContext,
    function: KeyedStateReaderFunction[Any, Any],
    *,
    restores: bool,
) -> Iterator[Any]:
    backend = context.state
    assert isinstance(backend, HeapKeyedStateBackend)
    event, processing = _Timers(), _Timers()
    backend.register_timers(EVENT_TIMERS, event)
    backend.register_timers(PROCESSING_TIMERS, processing)
    runtime_context = OperatorRuntimeContext(context, keyed=True)
    open_function(function, runtime_context)
    try:
        keys = dict.fromkeys(key for name in backend.registrations for key in backend.state_keys(name))
        if not backend.registrations:
            keys = dict.fromkeys((*event.by_key, *processing.by_key))
        if not keys and not backend.registrations and restores:
            raise StateProcessorError(
                f"operator '{operator.name}': the reader function registers no state in open, and the operator"
                " has no timers. Get the handles of the states to read from the RuntimeContext"
            )
        key_context = _KeyContext(event, processing)
        for key in keys:
            key_context.key = key
            backend.current_key = user_key(key)
            rows = function.read_key(backend.current_key, key_context)
            if rows is not None:
                yield from rows
    finally:
        runtime_context.close_state_functions()
        close_function(function)
