"""A line on the terminal that shows the progress of a job: records, rate, back-pressure, address of its web page.

Owner: the thread that runs the program; a daemon thread asks the REST API and writes to standard error. It
only looks: a job runs the same without it, and what cannot be asked is left out of the line.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TextIO, runtime_checkable

from yarrow.common.job_client import JobClient
from yarrow.runtime.common.clock import Clock, SystemClock

__all__ = ["progress"]

_INTERVAL = 0.5
#: Seconds between two lines on an output whose lines cannot be rewritten.
_INTERVAL_WITHOUT_TERMINAL = 5.0
#: Seconds without a new count after which the job is shown as standing still.
_STALLED = 3.0
_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class JobCounters:
    """The work that a job has done so far: records of its sources, and time its tasks waited for others."""

    records: int
    backpressured_ms: float
    subtasks: int

    @staticmethod
    def of(job: Mapping[str, Any]) -> JobCounters:
        """From the job's details in the REST API: a vertex without inputs in the plan is a source."""
        vertices = job.get("vertices", ())
        metrics = [vertex.get("metrics", {}) for vertex in vertices]
        readers = {node["id"] for node in job.get("plan", {}).get("nodes", ()) if node.get("inputs")}
        sources = [
            vertex.get("metrics", {}).get("write-records", 0)
            for vertex in vertices
            if vertex.get("id") not in readers
        ]
        waited = sum(entry.get("accumulated-backpressured-time", 0) for entry in metrics)
        return JobCounters(sum(sources), waited, sum(vertex.get("parallelism", 1) for vertex in vertices))


def line_of(before: JobCounters, now: JobCounters, seconds: float, address: str) -> str:
    """Return the line for the work within so many seconds."""
    rate = (now.records - before.records) / seconds if seconds > 0 else 0.0
    time = seconds * 1000 * max(now.subtasks, 1)
    waiting = min(100.0, 100 * (now.backpressured_ms - before.backpressured_ms) / time) if time > 0 else 0.0
    return f"{now.records:,} records, {rate:,.0f}/s, back-pressured {waiting:.0f} %, {address}"


@runtime_checkable
class HasWebInterface(Protocol):
    """A JobClient whose cluster serves the REST API."""

    def get_web_interface_url(self) -> str | None:
        """Return the address of the REST API, such as `http://localhost:8081`; None while there is none."""
        ...


@contextmanager
def progress(
    job_client: JobClient, stream: TextIO | None = None, clock: Clock | None = None
) -> Iterator[None]:
    """Shows the progress of a job while the block runs; without a web address it shows nothing."""
    if not isinstance(job_client, HasWebInterface) or (address := job_client.get_web_interface_url()) is None:
        yield
        return
    url = f"{address.rstrip('/')}/jobs/{job_client.get_job_id()}"
    out = stream or sys.stderr
    ended = threading.Event()
    shown = threading.Thread(
        target=_show,
        args=(lambda: _ask(url), address, out, ended, clock or SystemClock()),
        name="job-progress",
        daemon=True,
    )
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join(_TIMEOUT * 2)


def _show(
    ask: Callable[[], JobCounters | None], address: str, out: TextIO, ended: threading.Event, clock: Clock
) -> None:
    terminal = out.isatty()
    before, at = JobCounters(0, 0.0, 0), clock.monotonic()
    while not ended.wait(_INTERVAL if terminal else _INTERVAL_WITHOUT_TERMINAL):
        now = ask()
        if now is None:
            continue
        moment = clock.monotonic()
        if now == before and moment - at < _STALLED:
            continue  # The counts are those of the look before: tasks report once a second.
        line = line_of(before, now, moment - at, address)
        out.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
        out.flush()
        before, at = now, moment
    if terminal:
        out.write("\r\x1b[K")
        out.flush()


def _ask(url: str) -> JobCounters | None:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            return JobCounters.of(json.load(answer))
    except (urllib.error.URLError, OSError, ValueError):
        return None
