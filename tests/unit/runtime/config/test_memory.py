"""The memory budget: shares are equal, nothing is lost beyond rounding, and what cannot be is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.values.quantities import MemorySize
from yarrow.runtime.config.memory import (
    MANAGED_FRACTION,
    divide_memory,
    process_size_for,
    reserved_memory,
    task_executor_budget,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import MemoryBudgetError

MIB = MemorySize.of_mebi_bytes


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 34), st.integers(1, 512), st.integers(1, 1 << 30))
def test_the_shares_are_equal_and_sum_up(process: int, supervisor: int, slots: int, minimum: int) -> None:
    enough = process >= supervisor + slots * minimum
    try:
        budget = divide_memory(MemorySize(process), MemorySize(supervisor), slots, MemorySize(minimum))
    except MemoryBudgetError:
        assert not enough
        return
    assert enough
    assert budget.slot.bytes >= minimum
    assert 0 <= process - supervisor - slots * budget.slot.bytes < slots


def test_the_default_budget() -> None:
    budget = task_executor_budget(Settings())
    assert (budget.process, budget.supervisor, budget.slots) == (MIB(1024), MIB(192), 1)
    assert budget.slot == MIB(832)


def test_slots_of_the_job_instead_of_the_configured_number() -> None:
    budget = task_executor_budget(Settings({"taskmanager.memory.process.size": "2240m"}), slots=8)
    assert budget.slots == 8
    assert budget.slot == MIB(256)


def test_the_inverse() -> None:
    size = process_size_for(3, MIB(100), MIB(50))
    assert divide_memory(size, MIB(50), 3, MIB(100)).slot == MIB(100)


def test_the_error_says_what_to_set() -> None:
    with pytest.raises(MemoryBudgetError, match="Raise it to at least `320 mb`") as caught:
        divide_memory(MIB(300), MIB(192), 2, MIB(64))
    assert "taskmanager.numberOfTaskSlots" in str(caught.value)


def test_no_slots_is_an_error() -> None:
    with pytest.raises(MemoryBudgetError, match="at least one slot"):
        divide_memory(MIB(300), MIB(100), 0, MIB(64))


def test_state_backends_have_their_share_of_a_slot_where_it_is_a_bound() -> None:
    slot = MemorySize(1 << 30)
    assert reserved_memory(Settings({}), slot).bytes == int((1 << 30) * MANAGED_FRACTION)
    fixed = {"state.backend.rocksdb.memory.fixed-per-slot": "64 mb"}
    assert reserved_memory(Settings(fixed), slot).bytes == 64 << 20
    each_its_own = {"state.backend.rocksdb.memory.managed": "false"}
    assert reserved_memory(Settings(each_its_own), slot).bytes == 0
