"""FaultPlan: one fault at one named place, at one moment of a job, chosen by a seed and replayable from it.

Owner: `FaultPlanner.reached` is called by whatever thread stands at a fault point, in the control plane's process and
in workers alike. A folder that all of them reach makes sure that a plan fires once, whatever restarts. Tests only.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import json
import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yarrow.runtime.common import fault_points

#: Configuration that has workers install a plan; see `install_in_worker`.
PLAN_KEY = "testing.fault-plan"
ARGUMENTS_KEY = "testing.fault-plan.arguments"
FACTORY = "yarrow.testing.fault_plan:planner_from_arguments"

#: Longer than the checkpoint timeout of fault tests.
STALL_SECONDS = 1.5

#: Between two looks whether a held process may go on.
_LOOK_SECONDS = 0.02

#: Points that a job's own function stands at, see `tests.support.fault_jobs`.
RECORD_POINT = "user.record"


class FaultAction(enum.Enum):
    """What happens at the point."""

    #: SIGKILL to the process that stands there.
    KILL = "kill"
    #: SIGKILL to the TaskExecutor above the worker that stands there.
    KILL_TASK_EXECUTOR = "kill the TaskExecutor"
    #: An exception, as of a failing disk or a bug.
    RAISE = "raise"
    #: The thread stands still for `seconds`.
    STALL = "stall"
    #: The thread stands still until the test calls `let_go`, or for `seconds`.
    HOLD = "hold"
    #: Of a message (`rpc.<method>`): it never arrives; its answer does not; it comes late; it comes twice.
    DROP_REQUEST = "drop the request"
    DROP_REPLY = "drop the reply"
    DELAY = "delay"
    DUPLICATE = "duplicate"


class InjectedFaultError(OSError):
    """Raised by a plan."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Fires at the `occurrence`-th time that some process stands at `point` after a first completed checkpoint."""

    seed: int
    point: str
    action: FaultAction
    occurrence: int = 1
    #: Of STALL.
    seconds: float = 0.0
    #: A failure of a user function comes first: for faults during the restart after one.
    prelude: bool = False
    #: How often it fires, each time in a process that has not fired yet.
    times: int = 1

    def to_json(self) -> str:
        """As text for a job's configuration."""
        return json.dumps(dataclasses.asdict(self) | {"action": self.action.value})

    @staticmethod
    def from_json(text: str) -> FaultPlan:
        """The plan again."""
        fields = json.loads(text)
        return FaultPlan(**fields | {"action": FaultAction(fields["action"])})

    def __str__(self) -> str:
        often = f", {self.times} times" if self.times > 1 else ""
        return f"seed {self.seed}: {self.action.value} at {self.point} #{self.occurrence}{often}"


def make_plan(seed: int, points: list[tuple[str, list[FaultAction]]], occurrences: int = 4) -> FaultPlan:
    """The plan of a seed: one of the points, one of its actions, one of its first occurrences."""
    generator = random.Random(seed)
    point, actions = generator.choice(points)
    action = generator.choice(actions)
    # Commits are few: the later ones of them may not come at all.
    occurrence = 1 if point.startswith("sink.") else generator.randint(1, occurrences)
    if point == RECORD_POINT:
        occurrence = generator.randint(1, 150)
    restoring = point.startswith("restore.")
    return FaultPlan(
        seed,
        point,
        action,
        1 if restoring else occurrence,
        STALL_SECONDS if action in (FaultAction.STALL, FaultAction.DELAY) else 0.0,
        prelude=restoring,
    )


#: Points of one checkpoint behind the preparation of sinks: in a worker, and in the JobMaster.
_BEFORE_PREPARE: Final = "sink.before-prepare"
_AFTER_PREPARE: Final = "sink.after-prepare"
_OF_WORKERS: Final = frozenset(
    {"checkpoint.before-acknowledge", "checkpoint.after-acknowledge", "checkpoint.before-notify"}
)
_OF_MASTERS: Final = "coordinator.before-notify"


class FileFaultPlanner:
    """Carries out one plan; processes agree through files of one folder.

    `armed` exists from the first completed checkpoint on. `fired` is created by the one that fires last.
    """

    #: Reached by a worker when it learns that a checkpoint is complete.
    ARMING_POINT = "checkpoint.before-notify"

    def __init__(self, plan: FaultPlan, folder: str, victims: Callable[[], list[int]] | None = None) -> None:
        """`victims` gives processes to kill where the process at the point is not to die (the control plane)."""
        self.plan = plan
        self._victims = victims
        self._prelude = Path(folder, "prelude")
        self._armed = Path(folder, "armed")
        self._fired = Path(folder, "fired")
        self._let_go = Path(folder, "let-go")
        self._gone_on = Path(folder, "gone-on")
        #: One for each time before the last.
        self._earlier = [Path(folder, f"fired-{number}") for number in range(1, plan.times)]
        self._is_armed = False
        self._count = 0
        self._lock = threading.Lock()

    @property
    def has_fired(self) -> bool:
        """True when the fault has happened as often as planned, in whichever process."""
        return self._fired.exists()

    @property
    def was_armed(self) -> bool:
        """True when a checkpoint had been completed."""
        return self._armed.exists()

    def reached(self, point: str, detail: dict[str, object]) -> None:
        """See the class."""
        if self.fires(point, detail):
            self._act(detail)

    def fires(self, point: str, detail: dict[str, object]) -> bool:
        """Whether the fault happens here and now; true as often as the plan says."""
        if point == self.ARMING_POINT and detail.get("notice", "completed") == "completed":
            self._armed.touch()
        if self._fired.exists():
            return False
        if not self._is_armed:
            self._is_armed = self._armed.exists()
        if not self._is_armed:
            return False
        if self.plan.prelude and point == RECORD_POINT and _claim(self._prelude, detail):
            raise InjectedFaultError(f"injected before {self.plan}")
        if point != self.plan.point:
            return False
        with self._lock:
            self._count += 1
            # Not equal: another process may have counted too, and whoever is first past the number claims it.
            return self._count >= self.plan.occurrence and any(
                _claim(marker, detail) for marker in (*self._earlier, self._fired)
            )

    def _act(self, detail: dict[str, object]) -> None:
        match self.plan.action:
            case FaultAction.KILL | FaultAction.KILL_TASK_EXECUTOR if self._victims is not None:
                for pid in self._victims():
                    # One that has ended is a victim already.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            case FaultAction.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case FaultAction.KILL_TASK_EXECUTOR:
                os.kill(_parent_of(os.getppid()), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case FaultAction.RAISE:
                raise InjectedFaultError(f"injected at {self.plan.point} ({detail})")
            case FaultAction.STALL:
                threading.Event().wait(self.plan.seconds)
            case FaultAction.HOLD:
                self._hold()

    @property
    def has_gone_on(self) -> bool:
        """True when a process has gone on that HOLD had stopped."""
        return self._gone_on.exists()

    @property
    def pid(self) -> int:
        """The process in which the fault happened last; 0 before it has written that down."""
        written = self._fired.read_text() if self._fired.exists() else ""
        return int(json.loads(written)["pid"]) if written.endswith("}") else 0

    def let_go(self) -> None:
        """Lets a process go on that HOLD has stopped."""
        self._let_go.touch()

    def _hold(self) -> None:
        pause, looks = threading.Event(), int(self.plan.seconds / _LOOK_SECONDS)
        for _ in range(looks):
            if self._let_go.exists():
                break
            pause.wait(_LOOK_SECONDS)
        self._gone_on.touch()


class ArmedByHand(FileFaultPlanner):
    """Fires not before the test has called `arm`, and at points of a checkpoint only where a sink has rows in it.

    A process that dies in a checkpoint without rows proves nothing of a sink.
    """

    ARMING_POINT = ""

    def __init__(self, plan: FaultPlan, folder: str, victims: Callable[[], list[int]] | None = None) -> None:
        super().__init__(plan, folder, victims)
        self._folder = Path(folder)
        #: Checkpoints that hold rows of this process's sinks.
        self._with_rows: set[object] = set()

    def arm(self) -> None:
        """From now on the plan may fire, in all processes."""
        self._armed.touch()

    def fires(self, point: str, detail: dict[str, object]) -> bool:
        """See the class."""
        checkpoint = detail.get("checkpoint_id")
        if point == _BEFORE_PREPARE and detail["rows"]:
            self._with_rows.add(checkpoint)
            (self._folder / f"rows-{checkpoint}").touch()
        return self._has_rows(point, detail, checkpoint) and super().fires(point, detail)

    def _has_rows(self, point: str, detail: dict[str, object], checkpoint: object) -> bool:
        """False at a point of a checkpoint without rows: of the sink, of the process, or of the whole job."""
        if point in (_BEFORE_PREPARE, _AFTER_PREPARE):
            return bool(detail["rows"])
        if point in _OF_WORKERS:
            return checkpoint in self._with_rows
        return point != _OF_MASTERS or (self._folder / f"rows-{checkpoint}").exists()


class CommittedInPart(FileFaultPlanner):
    """Fires where as many of a checkpoint's files are committed as the plan's occurrence says, and others are not.

    Which files belong to a checkpoint depends on the speed of the machine: commits of too few are passed by.
    """

    def fires(self, point: str, detail: dict[str, object]) -> bool:
        """See FileFaultPlanner."""
        if point == self.plan.point:
            if not self.plan.occurrence <= int(str(detail["index"])) < int(str(detail["of"])):
                return False
            self._count = self.plan.occurrence
        return super().fires(point, detail)


class PlannedMessages:
    """A MessageFault for the in-process network: carries out plans whose point is `rpc.<method>`."""

    def __init__(self) -> None:
        self.planner: FileFaultPlanner | None = None

    def _now(self, method: str, *actions: FaultAction) -> FaultPlan | None:
        planner = self.planner
        if planner is None or planner.plan.action not in actions:
            return None
        return planner.plan if planner.fires(f"rpc.{method}", {"method": method}) else None

    async def request(self, endpoint: str, method: str) -> bool:
        """False = lost."""
        plan = self._now(method, FaultAction.DROP_REQUEST, FaultAction.DELAY)
        if plan is not None and plan.action is FaultAction.DELAY:
            await asyncio.sleep(plan.seconds)
            return True
        return plan is None

    async def reply(self, endpoint: str, method: str) -> bool:
        """False = lost."""
        return self._now(method, FaultAction.DROP_REPLY) is None

    async def repeats(self, endpoint: str, method: str) -> bool:
        """True = it arrives twice."""
        return self._now(method, FaultAction.DUPLICATE) is not None


def _claim(marker: Path, detail: dict[str, object]) -> bool:
    """True for the one that creates the file."""
    try:
        handle = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as file:
        json.dump({name: str(value) for name, value in detail.items()} | {"pid": os.getpid()}, file)
    return True


def _parent_of(pid: int) -> int:
    """The parent of a process: the template's is the TaskExecutor."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


def planner_from_arguments(arguments: str) -> FileFaultPlanner:
    """What a worker installs: arguments are JSON with `plan` (see FaultPlan.to_json) and `folder`."""
    fields = json.loads(arguments)
    return FileFaultPlanner(FaultPlan.from_json(fields["plan"]), fields["folder"])


def armed_by_hand(arguments: str) -> ArmedByHand:
    """The same for an ArmedByHand."""
    fields = json.loads(arguments)
    return ArmedByHand(FaultPlan.from_json(fields["plan"]), fields["folder"])


def committed_in_part(arguments: str) -> CommittedInPart:
    """The same for a CommittedInPart."""
    fields = json.loads(arguments)
    return CommittedInPart(FaultPlan.from_json(fields["plan"]), fields["folder"])


def configuration_of(plan: FaultPlan, folder: str) -> dict[str, str]:
    """What a job's configuration needs for the plan."""
    return {PLAN_KEY: FACTORY, ARGUMENTS_KEY: json.dumps({"plan": plan.to_json(), "folder": folder})}


def install(planner: FileFaultPlanner | None) -> None:
    """For the control plane's points, which are reached in this very process."""
    fault_points.install(planner)
