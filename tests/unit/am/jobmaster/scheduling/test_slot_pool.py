"""SlotPool: sharing, offers taken and refused, idle slots given back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.job_graphs import Stage, linear_job
from yarrow.am.jobmaster.scheduling.regions import slots_needed
from yarrow.am.jobmaster.scheduling.slot_pool import SharedSlot, SlotPool
from yarrow.runtime.common.ids import AllocationID, ResourceID, WorkerID
from yarrow.runtime.rpc.messages import ResourceProfile, SlotOffer, WorkerAddress

TE = ResourceID("te")


def offer(name: str, index: int = 0) -> SlotOffer:
    worker = WorkerAddress(
        worker_id=WorkerID(name), resource_id=TE, host="h", port=0, unix_path="", host_key=""
    )
    return SlotOffer(
        allocation_id=AllocationID(name), slot_index=index, profile=ResourceProfile(), worker=worker
    )


def shared(*indexes: int, group: str = "default") -> list[SharedSlot]:
    return [SharedSlot(group, index) for index in indexes]


def test_offers_are_taken_in_the_order_of_need_and_no_more_than_needed() -> None:
    pool = SlotPool(50)
    pool.require(shared(0, 1))
    assert (pool.required, pool.waiting, pool.held) == (2, 2, 0)
    assert pool.offer(TE, [offer("a"), offer("b"), offer("c")]) == ("a", "b")
    assert (pool.required, pool.waiting, pool.held) == (2, 0, 2)
    first = pool.slot(SharedSlot("default", 0))
    assert first is not None and first.allocation_id == "a"


def test_an_offer_made_again_is_taken_again() -> None:
    pool = SlotPool(50)
    pool.require(shared(0))
    assert pool.offer(TE, [offer("a")]) == ("a",)
    assert pool.offer(TE, [offer("a")]) == ("a",)
    assert pool.held == 1


def test_a_released_slot_is_idle_used_again_or_given_back_late() -> None:
    pool = SlotPool(50)
    pool.require(shared(0, 1))
    pool.offer(TE, [offer("a"), offer("b")])
    pool.release(SharedSlot("default", 0), now=100)
    assert pool.required == 2
    pool.require(shared(7))
    again = pool.slot(SharedSlot("default", 7))
    assert again is not None and again.allocation_id == "a"
    pool.release(SharedSlot("default", 7), now=200)
    assert pool.take_idle(now=249) == []
    assert [slot.allocation_id for slot in pool.take_idle(now=250)] == ["a"]
    assert pool.required == 1


def test_a_slot_that_is_not_needed_goes_whatever_the_idle_timeout() -> None:
    # The longest that Flink has, which stands for never: 2 ** 63 - 1 milliseconds.
    pool = SlotPool(idle_timeout=(2**63 - 1) / 1000)
    pool.require([SharedSlot("default", 0)])
    pool.offer(ResourceID("te"), [offer("a")])
    pool.release_unless(lambda shared: False)
    assert [slot.allocation_id for slot in pool.take_idle(now=1)] == ["a"]


def test_what_waits_no_longer_is_not_required() -> None:
    pool = SlotPool(50)
    pool.require(shared(0, 1))
    pool.release(SharedSlot("default", 1), now=0)
    assert pool.required == 1
    assert pool.offer(TE, [offer("a"), offer("b")]) == ("a",)


def test_lost_slots_are_named_and_forgotten() -> None:
    pool = SlotPool(50)
    pool.require(shared(0, 1))
    pool.offer(TE, [offer("a", 3)])
    pool.offer(ResourceID("other"), [offer("b", 4)])
    assert pool.allocations_of(TE) == ((3, "a"),)
    assert [slot.allocation_id for slot in pool.remove_task_executor(TE)] == ["a"]
    assert pool.remove(AllocationID("a")) is None
    assert pool.slot(SharedSlot("default", 0)) is None
    assert [slot.allocation_id for slot in pool.clear()] == ["b"]
    assert pool.required == 0


def test_a_job_needs_the_largest_parallelism_of_each_group() -> None:
    job = linear_job(Stage(2), Stage(5), Stage(3, group="other"), Stage(1, group="other"))
    assert slots_needed(job) == 8


@given(st.lists(st.sampled_from(["require", "offer", "release", "lose", "idle"]), max_size=60), st.data())
def test_slots_always_add_up(steps: list[str], data: st.DataObject) -> None:
    pool = SlotPool(5)
    offered = 0
    for now, step in enumerate(steps):
        index = data.draw(st.integers(0, 4))
        match step:
            case "require":
                pool.require(shared(index))
            case "offer":
                offered += 1
                pool.offer(TE, [offer(f"slot-{offered}")])
            case "release":
                pool.release(SharedSlot("default", index), float(now))
            case "lose":
                held = pool.held_slots()
                if held:
                    pool.remove(held[index % len(held)].allocation_id)
            case "idle":
                pool.take_idle(float(now))
        used = [slot for slot in pool.held_slots() if slot.shared is not None]
        assert len({slot.shared for slot in used}) == len(used)
        assert pool.required == pool.held + pool.waiting
        for slot in used:
            assert slot.shared is not None and pool.slot(slot.shared) is slot
