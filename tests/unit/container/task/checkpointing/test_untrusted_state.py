"""What workers restore of a snapshot that is not known to be the job's own: everything but pickled values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.unit.container.state.contexts import context
from yarrow.container.sources.coordinator_state import CoordinatorState, dump_state, load_state
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.snapshot.errors import UntrustedPickleError
from yarrow.runtime.snapshot.handles import FileStateHandle, InlineStateHandle, StateHandle

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
