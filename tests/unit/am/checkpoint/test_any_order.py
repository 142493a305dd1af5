"""Whatever comes in whatever order: each id ends once, bounds are kept, needed files are never deleted."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.am.checkpoint.simulation import Simulation, failure
from yarrow.am.checkpoint.events import (
    Action,
    Discard,
    DiscardLocation,
    DoubtSettled,
    JobEndEvent,
    LocationFailed,
    MetadataFailed,
    Notify,
    PrepareLocation,
    Refused,
    SettleDoubt,
    StoreMetadata,
    Succeeded,
    TasksRestart,
    TriggerTasks,
)
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.rpc.messages import CheckpointNotice

#: What happens, with a number that chooses among what it can happen to.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["time", "time", "acknowledge", "acknowledge", "part", "located", "stored"] * 6
            + ["late", "late", "ask", "ask", "savepoint", "savepoint", "decline", "no folder", "not stored"]
            + ["restart", "stop", "finish", "flap"]
        ),
        st.integers(0, 30),
    ),
    max_size=150,
)


class Watched:
    """Checks every action that comes out."""

    def __init__(self, max_concurrent: int, min_pause: float, retained: int) -> None:
        self.simulation = Simulation(
            max_concurrent=max_concurrent,
            min_pause=min_pause,
            retained=retained,
            timeout=35.0,
            tolerable_failures=1,
        )
        first, second = self.simulation.tasks.attempts
        self.simulation.tasks.producers = {second: frozenset({first})}
        self.max_concurrent, self.min_pause = max_concurrent, min_pause
        self.kinds: dict[int, SnapshotKind] = {}
        self.ends: Counter[int] = Counter()
        self.open: set[int] = set()
        self.locating: list[int] = []
        self.storing: list[int] = []
        self.doubtful: list[int] = []
        self.triggered: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.last_end = float("-inf")
        self.deleted: set[str] = set()
        self.answers: Counter[str] = Counter()
        self.manual = 0

    def see(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case PrepareLocation(checkpoint_id, kind):
                    assert checkpoint_id > max(self.kinds, default=0), "ids strictly increase"
                    self.kinds[checkpoint_id] = kind
                    self.locating.append(checkpoint_id)
                case TriggerTasks(checkpoint_id, attempts=attempts):
                    again = checkpoint_id in self.triggered
                    assert again or checkpoint_id > max(self.triggered, default=0), (
                        "barriers in the order of ids"
                    )
                    self.triggered[checkpoint_id].update(attempts)
                    assert set(self.triggered[checkpoint_id].values()) == {1}, "each task hears of it once"
                case StoreMetadata(checkpoint_id):
                    self.storing.append(checkpoint_id)
                case Notify(checkpoint_id, notice, latest):
                    if notice is CheckpointNotice.COMPLETED:
                        assert latest >= checkpoint_id
                case DiscardLocation(_, _, shared):
                    self.deleted.update(shared)
                case SettleDoubt(checkpoint_id):
                    self.doubtful.append(checkpoint_id)
                case Discard(dropped):
                    assert dropped.checkpoint.owned or dropped.shared
                    self.deleted.update(dropped.shared)
                case Succeeded(request) | Refused(request):
                    self.answers[request.request_id] += 1
                case _:
                    pass
        self._compare()

    def pass_time(self, seconds: float) -> None:
        """Stops wherever the coordinator wants to be woken."""
        simulation = self.simulation
        end = simulation.clock.monotonic() + seconds
        while (due := simulation.coordinator.next_wake()) is not None and due <= end:
            self.see(simulation.after(max(0.0, due - simulation.clock.monotonic())))
        self.see(simulation.after(max(0.0, end - simulation.clock.monotonic())))

    def files(self, checkpoint_id: int, number: int) -> tuple[str, ...]:
        """A file that is new, and some of those that the latest completed checkpoint has: an increment."""
        latest = self.simulation.coordinator.store.latest
        old = latest.shared if latest is not None and latest.checkpoint_id < checkpoint_id else ()
        return (f"/shared/{checkpoint_id}-{number}", *old[number % 3 :])

    def _compare(self) -> None:
        coordinator = self.simulation.coordinator
        now = {pending.checkpoint_id for pending in coordinator.pending}
        for checkpoint_id in self.open - now:
            self.ends[checkpoint_id] += 1
            if self.kinds[checkpoint_id] is SnapshotKind.CHECKPOINT:
                self.last_end = self.simulation.clock.monotonic()
        for pending in coordinator.pending:
            new = pending.checkpoint_id not in self.open
            if new and pending.request_id is None:
                assert self.simulation.clock.monotonic() >= self.last_end + self.min_pause - 1e-6
        self.open = now
        plain = [each for each in now if self.kinds[each] is SnapshotKind.CHECKPOINT]
        assert len(plain) <= self.max_concurrent
        needed = {path for kept in coordinator.store.all for path in kept.shared}
        assert not needed & self.deleted, "a file that a kept checkpoint needs was deleted"


def run(watched: Watched, step: str, number: int) -> None:
    simulation = watched.simulation
    ids = sorted(watched.kinds)
    some = ids[number % len(ids)] if ids else 1
    match step:
        case "time":
            watched.pass_time(float(number))
        case "located" if watched.locating:
            watched.see(simulation.located(watched.locating.pop(0)))
        case "no folder" if watched.locating:
            watched.see(simulation.handle(LocationFailed(watched.locating.pop(0), failure())))
        case "stored" if watched.storing:
            watched.see(simulation.stored(watched.storing.pop(number % len(watched.storing))))
        case "not stored" if watched.storing:
            watched.see(simulation.handle(MetadataFailed(watched.storing.pop(0), failure())))
        case "in doubt" if watched.storing:
            checkpoint_id = watched.storing.pop(0)
            doubted = MetadataFailed(
                checkpoint_id, failure(), counts=False, pointer=f"/chk-{checkpoint_id}", in_doubt=True
            )
            watched.see(simulation.handle(doubted))
        case "settled" if watched.doubtful:
            watched.see(simulation.handle(DoubtSettled(watched.doubtful.pop(0))))
        case "acknowledge" if watched.open:
            one = sorted(watched.open)[number % len(watched.open)]
            for task in range(2):
                watched.see(simulation.acknowledge(one, task, *watched.files(one, number)))
        case "part" if watched.open:
            one = sorted(watched.open)[number % len(watched.open)]
            watched.see(simulation.acknowledge(one, number % 3, *watched.files(one, number)))
        case "late":
            watched.see(simulation.acknowledge(some, number % 3, *watched.files(some, number)))
        case "decline":
            watched.see(simulation.decline(some, number % 3 if number % 3 else None))
        case "restart":
            watched.see(simulation.handle(TasksRestart("a worker died")))
        case "finish":
            watched.see(simulation.finish(number % 3, some - 1 if number % 2 else some))
        case "flap":
            simulation.tasks.trouble = "a task is DEPLOYING"
            watched.see(simulation.after(0))
            simulation.tasks.trouble = ""
            watched.see(simulation.after(0))
        case "ask":
            watched.see(simulation.request())
        case "savepoint":
            watched.see(simulation.request(SnapshotKind.SAVEPOINT, cancel_job=number % 7 == 0))
        case "stop":
            watched.see(simulation.request(SnapshotKind.SAVEPOINT_SUSPEND))
        case _:
            pass


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    steps=STEPS,
    max_concurrent=st.integers(1, 3),
    min_pause=st.sampled_from([0.0, 5.0, 25.0]),
    retained=st.integers(1, 3),
)
def test_each_id_ends_once_and_bounds_are_kept(
    steps: list[tuple[str, int]], max_concurrent: int, min_pause: float, retained: int
) -> None:
    watched = Watched(max_concurrent, min_pause, retained)
    for step, number in steps:
        run(watched, step, number)
    watched.see(watched.simulation.handle(JobEndEvent("the job is CANCELED")))
    while watched.locating:
        run(watched, "located", 0)
    while watched.storing:
        run(watched, "stored", 0)
    while watched.doubtful:
        run(watched, "settled", 0)
    assert not watched.simulation.coordinator.in_doubt
    assert set(watched.ends) == set(watched.kinds)
    assert set(watched.ends.values()) <= {1}
    assert set(watched.answers.values()) <= {1}
    statistics = watched.simulation.coordinator.statistics.statistics()
    assert statistics.counts.in_progress == 0
    assert statistics.counts.completed + statistics.counts.failed == len(watched.kinds)
