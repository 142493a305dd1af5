"""The state backend that a job gets for each value of `state.backend.type`."""

from __future__ import annotations

import pytest

from tests.unit.container.state.contexts import context
from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.backend_builder import keyed_state_backend
from yarrow.container.state.errors import StateBackendError
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend


class OwnBackend(HeapKeyedStateBackend):
    """A custom backend."""


def make_own(made: KeyedBackendContext) -> OwnBackend:
    return OwnBackend(made)


def make_nothing(made: KeyedBackendContext) -> None:
    return None


def of(name: str) -> object:
    return keyed_state_backend(context(settings={"state.backend.type": name}))


@pytest.mark.parametrize("name", ["hashmap", "HashMap", "filesystem", "jobmanager", "memory"])
def test_the_heap_has_old_names(name: str) -> None:
    assert type(of(name)) is HeapKeyedStateBackend
    assert type(keyed_state_backend(context())) is HeapKeyedStateBackend


def test_a_custom_backend_is_named_by_module_and_function() -> None:
    assert type(of(f"{__name__}:make_own")).__name__ == "OwnBackend"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rocks", r"'rocks' is no state backend; use hashmap, rocksdb, or module:name"),
        ("no_such_module:make", r"cannot be loaded: No module named 'no_such_module'"),
        (f"{__name__}:no_such_name", r"cannot be loaded: .*no_such_name"),
        (f"{__name__}:make_nothing", r"gives a NoneType; it must name a function"),
    ],
)
def test_what_is_no_backend_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(StateBackendError, match=message):
        of(name)
