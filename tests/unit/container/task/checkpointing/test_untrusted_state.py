"""What workers restore of a snapshot that is not known to be the job's own: everything but pickled values."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.unit.container.state.contexts import context
from yarrow.common import Types
from yarrow.container.sources.coordinator_state import CoordinatorState, dump_state, load_state
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.datastream.connectors.base import Boundedness
from yarrow.datastream.connectors.hybrid_source import HybridSource, SourceSwitchContext
from yarrow.datastream.connectors.hybrid_source.hybrid_splits import (
    HybridEnumeratorState,
    HybridSourceSplit,
    MadeSource,
    SwitchSource,
)
from yarrow.datastream.connectors.number_seq import NumberRange, NumberSequenceSource
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.snapshot.errors import UntrustedPickleError
from yarrow.runtime.snapshot.handles import FileStateHandle, InlineStateHandle, StateHandle
from yarrow.runtime.snapshot.value_serializers import holds_pickles, value_serializer

OPTIONS = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory=""))


class Odd:
    """Has no form but a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Odd, ()


class Inline:
    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        return InlineStateHandle(data=b"".join(chunks))

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        raise AssertionError("heap state shares no files")

    def write_own_file(self, local_path: str) -> StateHandle:
        raise AssertionError("heap state has no files")


def test_the_state_of_an_enumerator() -> None:
    plain = dump_state(CoordinatorState(1, ["split"], []), "source")
    assert load_state(plain, "source", trusted=False).enumerator == ["split"]
    odd = dump_state(CoordinatorState(1, Odd(), []), "source")
    with pytest.raises(UntrustedPickleError, match="operator 'source'"):
        load_state(odd, "source", trusted=False)
    assert isinstance(load_state(odd, "source").enumerator, Odd)


def test_a_source_that_a_function_has_made_is_a_pickle_wherever_the_state_holds_it() -> None:
    made = MadeSource(pickle.dumps(NumberSequenceSource(1, 2)))
    split = HybridSourceSplit(1, NumberRange("0", 1, 3), made)
    switch = [(0, 1, [(0, ("event", SwitchSource(1, made)))])]
    held = CoordinatorState(1, HybridEnumeratorState(1, [], made, ()), [])
    sent = CoordinatorState(1, HybridEnumeratorState(0, [], None, ()), switch)
    for state in (held, sent):
        data = dump_state(state, "source")
        assert load_state(data, "source") == state
        with pytest.raises(UntrustedPickleError, match="operator 'source'"):
            load_state(data, "source", trusted=False)
    written = value_serializer(Types.PICKLED_BYTE_ARRAY(), "source-splits", "source")
    data = written.dump_values([split])
    assert holds_pickles(written.config())
    with pytest.raises(UntrustedPickleError, match="source-splits"):
        value_serializer(Types.PICKLED_BYTE_ARRAY(), "source-splits", "source", trusted=False).load_values(
            data
        )


def test_bytes_in_the_place_of_a_made_source_are_not_unpickled() -> None:
    """As a snapshot may hold them that was written to deceive."""
    source = HybridSource.builder(NumberSequenceSource(1, 2)).add_source(_never, Boundedness.BOUNDED).build()
    deceiving: Any = pickle.dumps(Odd())
    data = dump_state(CoordinatorState(1, HybridEnumeratorState(1, [], deceiving, ()), []), "source")
    state = load_state(data, "source", trusted=False).enumerator
    context: Any = None
    with pytest.raises(ValueError, match="source 1 is made at the switch, and the state holds bytes"):
        source.create_enumerator(context, state)


def _never(context: SourceSwitchContext) -> NumberSequenceSource:
    raise AssertionError("nothing is switched")


@pytest.mark.parametrize("value", ["a text", Odd()], ids=["plain", "pickled"])
def test_keyed_state(value: Any) -> None:
    seen: ValueStateDescriptor[Any] = ValueStateDescriptor("seen")
    backend = HeapKeyedStateBackend(context())
    backend.current_key = 1
    backend.value_state(seen).update(value)
    handles = backend.snapshot(1, OPTIONS).write(Inline())
    untrusting = HeapKeyedStateBackend(msgspec.structs.replace(context(restored=handles), trusted=False))
    untrusting.current_key = 1
    if isinstance(value, Odd):
        with pytest.raises(UntrustedPickleError, match="state 'seen'"):
            untrusting.value_state(seen).value()
    else:
        assert untrusting.value_state(seen).value() == value
