"""Keyed state written without a backend: keys with contents become the canonical form of one state.

Owner: the calling thread. A state's contents are in memory once; it must not know tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import Timer
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.snapshot.handles import KeyGroupsSnapshot, StateKind
from yarrow.runtime.snapshot.key_columns import split_by_key_group
from yarrow.runtime.snapshot.key_group_form import MAX_RUN, EncodedRun, Run, StateForm, write_key_groups
from yarrow.runtime.snapshot.key_types import KeyEvidence
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.value_serializers import value_serializer
from yarrow.state_processor.errors import StateProcessorError


@dataclass(frozen=True, slots=True)
class KeyedTarget:
    """The state to write, as a descriptor declares it."""

    name: str
    kind: StateKind
    value_type: TypeInformation
    map_key_type: TypeInformation | None
    ttl: bool

    @staticmethod
    def of(descriptor: StateDescriptor) -> KeyedTarget:
        """The target that the descriptor declares. Raises TypeError for a descriptor of no keyed state."""
        map_key: TypeInformation | None = None
        match descriptor:
            case ValueStateDescriptor():
                kind, value = StateKind.VALUE, descriptor.type_info
            case ListStateDescriptor():
                kind, value = StateKind.LIST, descriptor.elem_type_info
            case MapStateDescriptor():
                kind, value, map_key = StateKind.MAP, descriptor.value_type_info, descriptor.key_type_info
            case ReducingStateDescriptor():
                kind, value = StateKind.REDUCING, descriptor.type_info
            case AggregatingStateDescriptor():
                kind, value = StateKind.AGGREGATING, descriptor.type_info
            case _:
                raise TypeError(f"expected the descriptor of a keyed state, not {descriptor!r}")
        return KeyedTarget(descriptor.get_name(), kind, value, map_key, descriptor.ttl_config is not None)

    def form(self, operator: str) -> StateForm:
        """The form in which the state is written."""
        return StateForm(
            self.name,
            self.kind,
            value_serializer(self.value_type, self.name, operator),
            None
            if self.kind is not StateKind.MAP
            else value_serializer(self.map_key_type, self.name, operator),
            self.ttl,
        )


class KeyedContents:
    """Contents by canonical key, gathered row by row."""

    def __init__(self, target: KeyedTarget, operator: str) -> None:
        self._target = target
        self._operator = operator
        self._now = SystemClock().epoch_ms()
        self.by_key: dict[Any, Any] = {}

    def add(self, key: Any, value: Any, accessed: Any = None) -> None:
        """Add one row: more elements or entries for a known key; raises StateProcessorError for a second value."""
        key = canonicalize(key)
        kind = self._target.kind
        if value is None:
            return
        content = value if not self._target.ttl else self._stamped(value, accessed)
        known = self.by_key.get(key)
        if known is None:
            self.by_key[key] = content
        elif kind is StateKind.LIST:
            known += content
        elif kind is StateKind.MAP:
            known.update(content)
        else:
            raise StateProcessorError(
                f"operator '{self._operator}', state '{self._target.name}': the key {key!r:.200} comes twice; give "
                "each key one row"
            )

    def _stamped(self, value: Any, accessed: Any) -> Any:
        kind = self._target.kind
        if kind is StateKind.LIST:
            times = [self._now] * len(value) if accessed is None else accessed
            return list(zip(times, value, strict=True))
        if kind is StateKind.MAP:
            times_of: Mapping[Any, int] = (
                accessed if accessed is not None else dict.fromkeys(value, self._now)
            )
            return {key: (times_of[key], item) for key, item in value.items()}
        return (self._now if accessed is None else accessed, value)


def write_state(
    target: KeyedTarget,
    operator: str,
    contents: Mapping[Any, Any],
    max_parallelism: int,
    output: SnapshotOutput,
    evidence: KeyEvidence,
) -> KeyGroupsSnapshot:
    """Write one state as a handle of all key groups, with the evidence of its keys.

    Raises StateSerializationError naming operator and state.
    """
    runs = _runs(contents, max_parallelism)
    return write_runs(target.form(operator), runs, _all_groups(max_parallelism), output, evidence)


def write_timers(
    name: str,
    timers: Iterable[Timer],
    max_parallelism: int,
    output: SnapshotOutput,
    evidence: KeyEvidence,
) -> KeyGroupsSnapshot:
    """The timers of one domain, in the same way; `name` is that of their section."""
    found = list(timers)
    form = StateForm(name, StateKind.TIMERS, value_serializer(None, name, name))
    contents = [(timer.timestamp, timer.namespace) for timer in found]
    runs = _runs_of([timer.key for timer in found], contents, max_parallelism)
    return write_runs(form, runs, _all_groups(max_parallelism), output, evidence)


def _all_groups(max_parallelism: int) -> KeyGroupRange:
    return KeyGroupRange(0, max_parallelism - 1)


def write_runs(
    form: StateForm,
    runs: Iterable[Run],
    key_groups: KeyGroupRange,
    output: SnapshotOutput,
    evidence: KeyEvidence,
) -> KeyGroupsSnapshot:
    """Write runs of one state, all of these key groups. Raises StateSerializationError naming operator and state."""
    pieces = write_key_groups([form], evidence.of_runs(runs))
    return _stored(form, pieces, key_groups, output, evidence)


def write_encoded_runs(
    form: StateForm,
    runs: Iterable[EncodedRun],
    key_groups: KeyGroupRange,
    output: SnapshotOutput,
    evidence: KeyEvidence,
) -> KeyGroupsSnapshot:
    """The same for runs that are bytes already; the serializers of `form` made those of the values."""
    pieces = write_key_groups([form], (), evidence.of_encoded(runs))
    return _stored(form, pieces, key_groups, output, evidence)


def _stored(
    form: StateForm,
    pieces: Iterable[bytes],
    key_groups: KeyGroupRange,
    output: SnapshotOutput,
    evidence: KeyEvidence,
) -> KeyGroupsSnapshot:
    handle = output.write(pieces)
    return KeyGroupsSnapshot(
        key_groups=(key_groups.start, key_groups.end),
        states=(form.meta(),),
        handle=handle,
        key_type=evidence.spec(),
        key_columns=evidence.columns(),
    )


def _runs(contents: Mapping[Any, Any], max_parallelism: int) -> Iterator[Run]:
    return _runs_of(list(contents), list(contents.values()), max_parallelism)


def _runs_of(keys: list[Any], values: list[Any], max_parallelism: int) -> Iterator[Run]:
    for start in range(0, len(keys), MAX_RUN):
        piece = slice(start, start + MAX_RUN)
        split = split_by_key_group(keys[piece], max_parallelism, values[piece])
        for group, (group_keys, group_values) in split:
            yield Run(0, group, group_keys, group_values)
