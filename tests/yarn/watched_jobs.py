"""A job as REST tells of it, on YARN or on standalone masters: its state, its checkpoints, its restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tests.yarn.waiting import GRACE, until

ENDED = ("FINISHED", "CANCELED", "FAILED")
#: However often a test disturbs its job.
RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "200 ms",
}


class Cluster(Protocol):
    """Whose leader is asked by REST, whoever it is."""

    def ask(self, method: str, path: str) -> Any:
        """Its answer; an error where there is none."""

    def get(self, path: str) -> Any:
        """Its answer; None while nobody leads, or it does not know what is asked for."""

    def has_ended(self) -> bool:
        """Whether there will be no leader any more."""


class WatchedJob:
    """One job; all counts are since the present master leads."""

    def __init__(self, cluster: Cluster, job_id: str) -> None:
        self.cluster, self.job_id = cluster, job_id

    def get(self, below: str = "") -> Any:
        return self.cluster.get(f"/jobs/{self.job_id}{below}")

    def state(self) -> str:
        """ "" while nobody can say."""
        return str((self.get() or {}).get("state", ""))

    def runs(self) -> bool:
        """Whether the master that leads sees all its tasks running."""
        job = self.get() or {}
        tasks: Mapping[str, int] = job.get("status-counts", {})
        return job.get("state") == "RUNNING" and tasks.get("RUNNING") == sum(tasks.values()) > 0

    def count(self, what: str) -> int:
        """Of its checkpoints, how many are `completed`, `failed`, or were `restored`."""
        return int((self.get("/checkpoints") or {}).get("counts", {}).get(what, 0))

    def last_checkpoint(self) -> int:
        """Id of the last completed one, 0 before."""
        return self._latest("completed")

    def restored_from(self) -> int:
        """Id of the checkpoint that it was restored from last, 0 when it never was."""
        return self._latest("restored")

    def subtasks(self, name: str = "") -> list[dict[str, Any]]:
        """What REST tells of the subtasks of all vertices whose names hold `name`."""
        vertices = [one["id"] for one in (self.get() or {}).get("vertices", []) if name in one["name"]]
        found = [self.get(f"/vertices/{vertex}") or {} for vertex in vertices]
        return [one for vertex in found for one in vertex.get("subtasks", [])]

    def attempts(self) -> int:
        """Sum of the attempts of all its subtasks: it rises with each restart."""
        return sum(int(one["attempt"]) for one in self.subtasks())

    def until_running(self, seconds: float = GRACE) -> None:
        until(self.runs, seconds, f"job {self.job_id} runs")

    def until_checkpoints(self, more: int = 2, seconds: float = GRACE) -> None:
        """So many more are completed under the present master."""
        last = self.last_checkpoint()
        until(lambda: self.last_checkpoint() >= last + more, seconds, f"{more} checkpoints of {self.job_id}")

    def until_disturbed_and_back(self, disturb: Callable[[], None], seconds: float = GRACE) -> None:
        """Does what restarts the tasks, and returns when they run again, restored from a checkpoint."""
        attempts, last = self.attempts(), self.last_checkpoint()
        disturb()
        until(
            lambda: self.runs() and (self.attempts() > attempts or self.restored_from() >= last),
            seconds,
            f"job {self.job_id} runs again",
        )
        assert self.restored_from() >= last, "it went on from its last checkpoint"

    def cancel(self) -> None:
        self.cluster.ask("PATCH", f"/jobs/{self.job_id}?mode=cancel")

    def _latest(self, what: str) -> int:
        latest = (self.get("/checkpoints") or {}).get("latest") or {}
        return int((latest.get(what) or {"id": 0})["id"])
