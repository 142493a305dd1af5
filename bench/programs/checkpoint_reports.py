"""What the programs of this folder ask the REST API of a running embedded job about its checkpoints."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any


class CheckpointReports:
    """The checkpoints of one running job."""

    def __init__(self, client: Any) -> None:
        self._job = f"{client.get_web_interface_url()}/jobs/{client.get_job_id()}"

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._job}{path}") as answer:
            return json.load(answer)

    def statistics(self) -> Any:
        """GET /jobs/:jobid/checkpoints."""
        return self._get("/checkpoints")

    @property
    def completed(self) -> int:
        """How many are complete."""
        count: int = self.statistics()["counts"]["completed"]
        return count

    def history(self) -> list[Any]:
        """The completed ones that the server remembers, oldest first."""
        entries = [entry for entry in self.statistics()["history"] if entry["status"] == "COMPLETED"]
        return sorted(entries, key=lambda entry: int(entry["id"]))

    def sync_pauses(self, checkpoint_id: int, vertex_id: str) -> list[float]:
        """Milliseconds of the cut at each subtask of a vertex."""
        report = self._get(f"/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}")
        return [float(subtask["checkpoint"]["sync"]) for subtask in report["subtasks"]]

    def trigger(self) -> None:
        """POST /jobs/:jobid/checkpoints; answered before it is complete."""
        body = json.dumps({"checkpointType": "CONFIGURED"}).encode()
        request = urllib.request.Request(
            f"{self._job}/checkpoints", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request):
            pass

    def vertices(self) -> dict[str, str]:
        """Vertex ids by name."""
        return {vertex["name"]: vertex["id"] for vertex in self._get("")["vertices"]}


def wait_until(condition: Callable[[], bool], seconds: float, what: str, pause: float = 0.05) -> None:
    """Looks at a condition every `pause` seconds; the benchmark fails when it does not come true.

    Each look costs CPU time that the job at hand does not get: short pauses are for what is timed by them alone.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not happen within {seconds:g} s")
        time.sleep(pause)


def cancel(client: Any) -> None:
    """Returns when the job has ended and writes no file any more."""
    client.cancel().result()
    wait_until(lambda: client.get_job_status().result().name == "CANCELED", 60, "the end of the job")
