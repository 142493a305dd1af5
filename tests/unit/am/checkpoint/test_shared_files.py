"""Checkpoints that refer to files of earlier ones: whatever overtakes what, no file goes that one of them needs."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.am.checkpoint.simulation import Simulation
from yarrow.am.checkpoint.events import (
    Action,
    Discard,
    DiscardLocation,
    JobEndEvent,
    PrepareLocation,
    TasksRestart,
    TriggerTasks,
)
from yarrow.am.checkpoint.shared_state import SharedStateRegistry

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "cut", "acknowledge", "store"] * 5 + ["decline", "restart"]),
        st.integers(0, 11),
    ),
    max_size=80,
)


class Increments:
    """Tasks whose checkpoints refer to the files of a completed checkpoint that they know of."""

    def __init__(self, max_concurrent: int, retained: int) -> None:
        self.simulation = Simulation(1, max_concurrent=max_concurrent, retained=retained, interval=None)
        self.oldest: dict[int, int] = {}
        self.completed: dict[int, tuple[str, ...]] = {}
        #: What those that were cut refer to.
        self.cut: dict[int, tuple[str, ...]] = {}
        self.acknowledged: list[int] = []
        self.deleted: set[str] = set()
        self.written: set[str] = set()

    def see(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case PrepareLocation(checkpoint_id):
                    self.see(self.simulation.located(checkpoint_id))
                case TriggerTasks(checkpoint_id, _, options):
                    self.oldest[checkpoint_id] = options.oldest_kept
                case DiscardLocation(_, _, shared):
                    self.deleted.update(shared)
                case Discard(dropped):
                    self.deleted.update(dropped.shared)
                case _:
                    pass
        store = self.simulation.coordinator.store
        self.completed.update({kept.checkpoint_id: kept.shared for kept in store.all})
        needed = {path for kept in store.all for path in kept.shared}
        under_way = {pending.checkpoint_id for pending in self.simulation.coordinator.pending}
        needed |= {path for number, paths in self.cut.items() if number in under_way for path in paths}
        assert not needed & self.deleted, "a file that a checkpoint refers to was deleted"

    def run(self, step: str, number: int) -> None:
        simulation = self.simulation
        ids = [pending.checkpoint_id for pending in simulation.coordinator.pending]
        uncut = [each for each in ids if each not in self.cut]
        waiting = [each for each in ids if each in self.cut and each not in self.acknowledged]
        match step:
            case "begin":
                self.see(simulation.request())
            case "cut" if uncut:
                one = uncut[number % len(uncut)]
                # News of completed checkpoints comes late, or not at all.
                known = [each for each in self.completed if self.oldest[one] <= each < one]
                old = self.completed[known[number % len(known)]] if known else ()
                self.cut[one] = (f"/shared/{one}", *(old if number // 3 % 2 else ()))
                self.written.add(f"/shared/{one}")
            case "acknowledge" if waiting:
                one = waiting[number % len(waiting)]
                self.acknowledged.append(one)
                self.see(simulation.acknowledge(one, 0, *self.cut[one]))
            case "store" if done := [each for each in ids if each in self.acknowledged]:
                self.see(simulation.stored(done[number % len(done)]))
            case "decline" if ids:
                self.see(simulation.decline(ids[number % len(ids)]))
            case "restart":
                self.see(simulation.handle(TasksRestart("a worker died")))
            case _:
                pass


def _course(*checkpoints: int) -> list[tuple[str, int]]:
    return [(step, number) for number in checkpoints for step in ("begin", "cut", "acknowledge", "store")]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, max_concurrent=st.integers(1, 3), retained=st.integers(1, 2))
@example(  # one is cut while another is under way that needs nothing of the first and takes its place
    steps=[
        *_course(0),
        ("begin", 0),
        ("cut", 0),
        ("begin", 0),
        ("cut", 3),
        *[("acknowledge", 0), ("store", 0)] * 2,
    ],
    max_concurrent=2,
    retained=1,
)
@example(  # of the second, which takes the place of the first, the task that cuts for the third has not heard
    steps=[*_course(0), *_course(0), ("begin", 0), ("cut", 4), ("acknowledge", 0), ("store", 0)],
    max_concurrent=1,
    retained=1,
)
def test_no_file_goes_that_a_checkpoint_refers_to(
    steps: list[tuple[str, int]], max_concurrent: int, retained: int
) -> None:
    increments = Increments(max_concurrent, retained)
    for step, number in steps:
        increments.run(step, number)
    increments.see(increments.simulation.handle(JobEndEvent("the job is CANCELED")))
    kept = {path for each in increments.simulation.coordinator.store.all for path in each.shared}
    acknowledged = {f"/shared/{number}" for number in increments.acknowledged}
    stored = {f"/shared/{number}" for number in increments.completed}
    # Those of a checkpoint whose metadata is being written go when that ends.
    assert stored - kept <= increments.deleted, "a file that nobody needs was left"
    assert increments.deleted <= acknowledged


def test_files_of_one_that_is_not_kept_wait_for_those_under_way() -> None:
    registry = SharedStateRegistry()
    registry.register(1, ["/a", "/b"])
    assert registry.release(1, under_way=[2, 3]) == ()
    assert registry.unneeded(["/a", "/b", "/c"]) == ("/c",)
    registry.register(3, ["/b"])
    assert registry.ended(3) == () and registry.ended(2) == ("/a",)
    assert registry.release(3) == ("/b",)
    assert registry.ended(4) == ()
