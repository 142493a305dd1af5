"""OperatorStateBackend: operator state of one subtask, which belongs to no key, on the heap.

It holds lists whose elements are divided anew at another parallelism, lists of which every subtask gets all
elements, and broadcast maps. Owner: the task thread, except PendingOperatorSnapshot.write, which runs on the
snapshot thread. Values are copied when they are added. It must not know barriers, RPC or storage, nor the
receivers of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yarrow.container.state.heap_operator_states import (
    FrozenOperatorState,
    HeapBroadcastState,
    HeapOperatorListState,
    ReadOnlyBroadcastView,
    load_entries,
)
from yarrow.datastream.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    ReadOnlyBroadcastState,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.snapshot.errors import StateMigrationError, writing_states
from yarrow.runtime.snapshot.handles import (
    NamedOperatorState,
    OperatorStateHandle,
    OperatorStateMode,
    StateHandle,
)
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.value_serializers import restored_serializer, value_serializer

Read = Callable[[StateHandle], bytes]


class _Restored:
    """One restored state; its bytes are read when needed, once for each handle."""

    def __init__(self, state: NamedOperatorState, piece: _Piece) -> None:
        self.state = state
        self._piece = piece

    def elements(self) -> list[bytes]:
        data = self._piece.data
        return [data[offset : offset + length] for offset, length in self.state.elements]


class _Piece:
    def __init__(self, handle: StateHandle, read: Read) -> None:
        self._handle = handle
        self._read = read
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        if self._data is None:
            self._data = self._read(self._handle)
        return self._data


class OperatorStateBackend(OperatorStateStore):
    """The operator state of one subtask; `read` returns the verified bytes of a handle of `restored`.

    `trusted`: pickled values of `restored` may be read.
    """

    def __init__(
        self,
        operator_name: str,
        restored: Sequence[OperatorStateHandle] = (),
        read: Read | None = None,
        *,
        trusted: bool = False,
    ) -> None:
        self._operator = operator_name
        self._trusted = trusted
        self._states: dict[str, HeapOperatorListState | HeapBroadcastState] = {}
        self._restored: dict[str, list[_Restored]] = {}
        for handle in restored:
            assert read is not None
            piece = _Piece(handle.handle, read)
            for state in handle.states:
                self._restored.setdefault(state.name, []).append(_Restored(state, piece))

    # ------------------------------------------------------------------ states

    def list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        """A list whose elements are divided among the subtasks at a restore."""
        return self._list(descriptor, OperatorStateMode.SPLIT)

    def union_list_state(self, descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        """A list of which every subtask gets all elements of all subtasks at a restore."""
        return self._list(descriptor, OperatorStateMode.UNION)

    def take_union_list(self, descriptor: ListStateDescriptor[Any]) -> list[Any]:
        """The restored elements of such a list, once: no later snapshot holds them."""
        return list(self._restore_list(descriptor, OperatorStateMode.UNION).get() or ())

    def broadcast_state(self, descriptor: MapStateDescriptor[Any, Any]) -> BroadcastState[Any, Any]:
        """A map that is equal in all subtasks."""
        known = self._known(descriptor.get_name(), OperatorStateMode.BROADCAST)
        if known is None:
            known = self._restore_broadcast(descriptor)
            self._states[descriptor.get_name()] = known
        assert isinstance(known, HeapBroadcastState)
        known.check(self._operator, descriptor.key_type_info, descriptor.value_type_info)
        return known

    def read_only_broadcast_state(
        self, descriptor: MapStateDescriptor[Any, Any]
    ) -> ReadOnlyBroadcastState[Any, Any]:
        """The same map for the side that must not write."""
        state = self.broadcast_state(descriptor)
        assert isinstance(state, HeapBroadcastState)
        return ReadOnlyBroadcastView(state)

    def get_list_state(self, state_descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        return self.list_state(state_descriptor)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor[Any]) -> ListState[Any]:
        return self.union_list_state(state_descriptor)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> BroadcastState[Any, Any]:
        return self.broadcast_state(state_descriptor)

    def _list(self, descriptor: ListStateDescriptor[Any], mode: OperatorStateMode) -> ListState[Any]:
        known = self._known(descriptor.get_name(), mode)
        if known is None:
            known = self._restore_list(descriptor, mode)
            self._states[descriptor.get_name()] = known
        assert isinstance(known, HeapOperatorListState)
        known.check(self._operator, descriptor.elem_type_info)
        return known

    def _known(self, name: str, mode: OperatorStateMode) -> HeapOperatorListState | HeapBroadcastState | None:
        known = self._states.get(name)
        if known is not None and known.mode is not mode:
            raise InvalidProgramError(
                f"operator '{self._operator}': operator state '{name}' is a {known.mode.value} state and was asked "
                f"for as a {mode.value} state; give each state a name of its own"
            )
        return known

    # ------------------------------------------------------------------ restore

    def _restore_list(
        self, descriptor: ListStateDescriptor[Any], mode: OperatorStateMode
    ) -> HeapOperatorListState:
        name, declared = descriptor.get_name(), descriptor.elem_type_info
        serializer = value_serializer(declared, name, self._operator)
        values: list[Any] = []
        for restored in self._take(name, mode):
            reader = restored_serializer(
                restored.state.value, declared, self._operator, name, trusted=self._trusted
            )
            values += [reader.load_value(element) for element in restored.elements()]
        return HeapOperatorListState(name, mode, declared, serializer, values)

    def _restore_broadcast(self, descriptor: MapStateDescriptor[Any, Any]) -> HeapBroadcastState:
        name, key_type, value_type = (
            descriptor.get_name(),
            descriptor.key_type_info,
            descriptor.value_type_info,
        )
        entries: dict[Any, Any] = {}
        for restored in self._take(name, OperatorStateMode.BROADCAST)[:1]:
            state = restored.state
            assert state.map_key is not None
            keys = restored_serializer(state.map_key, key_type, self._operator, name, trusted=self._trusted)
            items = restored_serializer(state.value, value_type, self._operator, name, trusted=self._trusted)
            for element in restored.elements():
                entries = load_entries(element, keys, items)
        return HeapBroadcastState(
            name,
            key_type,
            value_type,
            value_serializer(key_type, name, self._operator),
            value_serializer(value_type, name, self._operator),
            entries,
        )

    def _take(self, name: str, mode: OperatorStateMode) -> list[_Restored]:
        found = self._restored.get(name, [])
        for restored in found:
            if restored.state.mode is not mode:
                raise StateMigrationError(
                    self._operator, name, "", f"a {restored.state.mode.value} state", f"a {mode.value} state",
                    "Ask for the state as it was, or give the new state another name.",
                )  # fmt: skip
        return self._restored.pop(name, [])

    # ------------------------------------------------------------------ snapshot

    def snapshot(self, checkpoint_id: int) -> PendingOperatorSnapshot:
        """Cuts: later changes are not part of it.

        States without a user in this program are carried on unchanged.
        """
        return PendingOperatorSnapshot(
            [state.freeze() for state in self._states.values()],
            [restored for pieces in self._restored.values() for restored in pieces],
        )


class PendingOperatorSnapshot:
    """The asynchronous part of a snapshot of operator state."""

    def __init__(self, states: Sequence[FrozenOperatorState], carried: Sequence[_Restored]) -> None:
        self._states = list(states)
        self._carried = list(carried)

    def write(self, output: SnapshotOutput) -> tuple[OperatorStateHandle, ...]:
        """Writes the frozen state; empty without state. Snapshot thread."""
        if not self._states and not self._carried:
            return ()
        named: list[NamedOperatorState] = []
        names = [frozen.name for frozen in self._states] + [each.state.name for each in self._carried]
        with writing_states(names):
            handle = output.write(self._chunks(named))
        return (OperatorStateHandle(states=tuple(named), handle=handle),)

    def _chunks(self, named: list[NamedOperatorState]) -> Iterator[bytes]:
        """The bytes of all elements; fills `named` on the way."""
        at = 0
        for frozen in self._states:
            places = []
            for element in frozen.elements():
                places.append((at, len(element)))
                at += len(element)
                yield element
            named.append(
                NamedOperatorState(
                    name=frozen.name,
                    mode=frozen.mode,
                    value=frozen.value.config(),
                    elements=tuple(places),
                    map_key=None if frozen.map_key is None else frozen.map_key.config(),
                )
            )
        for restored in self._carried:
            places = []
            for element in restored.elements():
                places.append((at, len(element)))
                at += len(element)
                yield element
            state = restored.state
            named.append(
                NamedOperatorState(
                    name=state.name,
                    mode=state.mode,
                    value=state.value,
                    elements=tuple(places),
                    map_key=state.map_key,
                )
            )

    def discard(self) -> None:
        """Drops the frozen state, also after a failed `write`. Any thread."""
        self._states.clear()
        self._carried.clear()
