"""ConnectorPlan: what happens to a job with a connector: one number, one plan.

Pure. A plan is a function of its number, of the guarantee and of the names of outages: printed, it replays.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection
from dataclasses import dataclass

from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.testing.fault_plan import FaultAction, FaultPlan


class PlanKind(enum.Enum):
    """What a plan does to the job, its cluster and the systems."""

    BARRIER = "a worker is killed at a barrier"
    PREPARE = "a worker is killed in prepare"
    ACKNOWLEDGEMENT = "a worker is killed between prepare and completion"
    COMPLETION = "a worker is killed between completion and commit"
    COMMIT = "a worker is killed inside the commit"
    COMMIT_TWICE = "workers are killed twice in the commit"
    COMMITTED = "a worker is killed behind the commit"
    TASK_EXECUTOR = "a TaskExecutor is killed"
    TASK_EXECUTOR_CUT_OFF = "a TaskExecutor is cut off from the master, and comes back"
    MASTER = "the master is killed, and another goes on"
    MASTER_CUT_OFF = "the master is cut off, and comes back"
    MASTER_ELECTED = "the leading master is killed, and another is elected"
    OUTAGE = "an outage"
    OUTAGE_AND_KILL = "an outage, in which a worker is killed"
    RESCALED = "rescaled 1 -> 4 -> 2"
    RESUMED = "stopped with a savepoint, and resumed at another parallelism"
    OLDER_SAVEPOINT = "restored from a savepoint that is older than its output"
    TWO_JOBS = "two jobs with one target, of which one has a worker killed"


#: The points at which workers of each kind are killed, as `yarrow.runtime.common.fault_points` names them.
_BARRIER = ("checkpoint.before-snapshot", "checkpoint.inside-snapshot", "checkpoint.after-snapshot")
_PREPARE = ("sink.before-prepare", "sink.after-prepare")
_ACKNOWLEDGEMENT = ("checkpoint.before-acknowledge", "checkpoint.after-acknowledge")
_COMPLETION = ("checkpoint.before-notify",)
_MASTER = (
    "coordinator.before-metadata",
    "checkpoint.before-metadata-rename",
    "checkpoint.after-metadata-rename",
    "coordinator.after-metadata",
    "coordinator.before-notify",
)
#: A worker is held at a point while the network is cut, so that each cut is in the middle of something.
_CUT_OFF = (*_BARRIER, *_PREPARE, *_ACKNOWLEDGEMENT, *_COMPLETION, "sink.before-commit", "sink.mid-commit")
_POINTS = {
    PlanKind.BARRIER: _BARRIER,
    PlanKind.PREPARE: _PREPARE,
    PlanKind.ACKNOWLEDGEMENT: _ACKNOWLEDGEMENT,
    PlanKind.COMPLETION: (*_COMPLETION, "sink.before-commit"),
    PlanKind.COMMIT: ("sink.mid-commit",),
    PlanKind.COMMIT_TWICE: ("sink.before-commit", "sink.mid-commit"),
    PlanKind.COMMITTED: ("sink.after-commit",),
    PlanKind.TASK_EXECUTOR: (
        *_BARRIER,
        *_PREPARE,
        *_ACKNOWLEDGEMENT,
        *_COMPLETION,
        "coordinator.before-notify",
    ),
    PlanKind.TASK_EXECUTOR_CUT_OFF: _CUT_OFF,
    PlanKind.MASTER: _MASTER,
    PlanKind.MASTER_CUT_OFF: _CUT_OFF,
    PlanKind.MASTER_ELECTED: _MASTER,
    PlanKind.TWO_JOBS: (*_BARRIER, *_PREPARE, *_ACKNOWLEDGEMENT, *_COMPLETION),
}
#: Kinds that need a sink which commits.
_COMMITS = {PlanKind.COMMIT, PlanKind.COMMIT_TWICE, PlanKind.COMMITTED}
_OUTAGES = {PlanKind.OUTAGE, PlanKind.OUTAGE_AND_KILL}
#: At which of its times a process dies at a point.
_OCCURRENCES = 3
#: Kinds that run on a cluster of their own, whose processes reach each other by relays.
CUT_OFF = frozenset({PlanKind.TASK_EXECUTOR_CUT_OFF, PlanKind.MASTER_CUT_OFF})
#: Longest time for which a process is held: longer than any wait of a trial.
_HELD_SECONDS = 300.0
#: Seconds that an outage lasts.
_SECONDS = (0.2, 3.0)


@dataclass(frozen=True, slots=True)
class ConnectorPlan:
    """One plan; see PlanKind for what it does."""

    number: int
    kind: PlanKind
    #: Where a process dies; None where the kind needs no such point.
    fault: FaultPlan | None = None
    #: The name of an outage, and how long it lasts.
    outage: str = ""
    seconds: float = 0.0
    #: Of a cut: connections break in the end. Else their bytes come late.
    breaks: bool = False
    #: Of a cut: the held worker goes on when its successor has completed checkpoints. Else as soon as it is cut off.
    late: bool = False

    def __str__(self) -> str:
        at = (
            f", {self.fault.action.value} at {self.fault.point} #{self.fault.occurrence}"
            if self.fault
            else ""
        )
        away = f", {self.outage} for {self.seconds:.1f} s" if self.outage else ""
        cut = ""
        if self.kind in CUT_OFF:
            cut = f", the worker goes on {'late' if self.late else 'at once'}, connections "
            cut += "break" if self.breaks else "come back"
        return f"plan {self.number}: {self.kind.value}{at}{away}{cut}"


def kinds_of(
    guarantee: DeliveryGuarantee, outages: Collection[str] = (), *, elections: bool = False
) -> list[PlanKind]:
    """The kinds that plans of such a connector have, in the order of their numbers."""
    left_out = set() if outages else set(_OUTAGES)
    if not elections:
        left_out.add(PlanKind.MASTER_ELECTED)
    if guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
        left_out = left_out | _COMMITS
    return [kind for kind in PlanKind if kind not in left_out]


def make_connector_plan(
    number: int,
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
    outages: Collection[str] = (),
    *,
    elections: bool = False,
) -> ConnectorPlan:
    """The plan of a number. Numbers in a row have all kinds in turn; all else is chosen by the number as a seed.

    `elections`: masters are elected; `check_connector` needs the settings of that.
    """
    kinds = kinds_of(guarantee, outages, elections=elections)
    kind = kinds[number % len(kinds)]
    generator = random.Random(number)
    points = _POINTS.get(kind, ())
    if guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
        points = tuple(point for point in points if not point.endswith("-commit"))
    fault = None
    if points:
        point = generator.choice(points)
        # Commits are few, and the later ones of a process may not come at all.
        occurrence = 1 if kind in _COMMITS else generator.randint(1, _OCCURRENCES)
        times = 2 if kind is PlanKind.COMMIT_TWICE else 1
        held = _HELD_SECONDS if kind in CUT_OFF else 0.0
        fault = FaultPlan(number, point, _action_of(kind), occurrence, held, times=times)
    if kind in CUT_OFF:
        breaks, late = generator.choice((False, True)), generator.choice((False, True))
        return ConnectorPlan(number, kind, fault, breaks=breaks, late=late)
    if kind not in _OUTAGES:
        return ConnectorPlan(number, kind, fault)
    seconds = round(generator.uniform(*_SECONDS), 1)
    return ConnectorPlan(number, kind, fault, generator.choice(sorted(outages)), seconds)


def _action_of(kind: PlanKind) -> FaultAction:
    if kind in CUT_OFF:
        return FaultAction.HOLD
    return FaultAction.KILL_TASK_EXECUTOR if kind is PlanKind.TASK_EXECUTOR else FaultAction.KILL
