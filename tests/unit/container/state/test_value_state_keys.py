"""Value state on the heap: one value a key, whatever form the key comes in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.container.state.contexts import context
from yarrow.common.types import Row
from yarrow.container.state.heap_keyed_state import NO_KEY, HeapKeyedStateBackend
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.errors import UnsupportedKeyError
from yarrow.runtime.data.keys import canonicalize

KEYS = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.floats(width=16),
    st.text("ab", max_size=2),
    st.binary(max_size=1),
    st.none(),
    st.tuples(st.integers(0, 1), st.floats(width=16)),
    st.builds(Row, st.integers(0, 1), st.text("a", max_size=1)),
)


@given(st.lists(st.tuples(KEYS, st.sampled_from(["update", "clear", "read"])), max_size=60))
def test_agrees_with_a_dict_of_canonical_keys(steps: list[tuple[Any, str]]) -> None:
    backend = HeapKeyedStateBackend(context())
    state = backend.value_state(ValueStateDescriptor("v"))
    model: dict[Any, int] = {}
    for number, (key, step) in enumerate(steps):
        backend.current_key = key
        canonical = canonicalize(key)
        if step == "update":
            state.update(number)
            model[canonical] = number
        elif step == "clear":
            state.clear()
            model.pop(canonical, None)
        assert state.value() == model.get(canonical)
    assert backend.entries == len(model)


def test_states_of_one_operator_are_apart_and_a_name_is_one_state() -> None:
    backend = HeapKeyedStateBackend(context())
    backend.current_key = "k"
    first, second = (
        backend.value_state(ValueStateDescriptor("a")),
        backend.value_state(ValueStateDescriptor("b")),
    )
    first.update(1)
    assert second.value() is None
    assert backend.value_state(ValueStateDescriptor("a")) is first


@pytest.mark.parametrize("reuse", [False, True])
def test_a_written_value_is_fixed_unless_objects_are_reused(reuse: bool) -> None:
    backend = HeapKeyedStateBackend(context(object_reuse=reuse))
    backend.current_key = "k"
    state = backend.value_state(ValueStateDescriptor("v"))
    written = [1]
    state.update(written)
    written.append(2)
    assert state.value() == ([1, 2] if reuse else [1])


@pytest.mark.parametrize("use", ["value", "update", "clear"])
def test_without_a_key_every_use_is_refused_by_name(use: str) -> None:
    backend = HeapKeyedStateBackend(context(operator_name="my operator"))
    state = backend.value_state(ValueStateDescriptor("my state"))
    backend.current_key = NO_KEY
    with pytest.raises(UnsupportedFeatureError, match=r"operator 'my operator': keyed state 'my state'"):
        state.update(1) if use == "update" else getattr(state, use)()
    assert backend.entries == 0


@pytest.mark.parametrize("use", ["value", "update", "clear"])
def test_a_value_that_is_no_key_is_refused(use: str) -> None:
    backend = HeapKeyedStateBackend(context())
    state = backend.value_state(ValueStateDescriptor("v"))
    backend.current_key = 1
    state.update(1)
    backend.current_key = [1]
    with pytest.raises(UnsupportedKeyError, match=r"builtins\.list cannot be a key"):
        state.update(1) if use == "update" else getattr(state, use)()
