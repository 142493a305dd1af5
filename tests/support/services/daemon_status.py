"""DaemonStatus: what is known of one daemon of a service, from its recorded process and from whether it serves.

Owner: the caller's thread. What it takes to serve is the caller's knowledge. Nothing is started or stopped here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.services import ports, processes
from tests.support.services.processes import ProcessRecord


@dataclass(frozen=True)
class DaemonStatus:
    """The state of one daemon, as `status` prints it."""

    name: str
    pid: int | None
    ports: dict[str, int]
    #: "serving", or what is wrong.
    state: str

    @property
    def serving(self) -> bool:
        return self.state == "serving"


def is_alive(started: Mapping[str, ProcessRecord], name: str) -> bool:
    """Whether the daemon was started and has not ended."""
    record = started.get(name)
    return record is not None and processes.is_alive(record)


def status_of(
    started: Mapping[str, ProcessRecord],
    known_ports: dict[str, int],
    name: str,
    what_is_missing: Callable[[dict[str, int], str], str | None],
) -> DaemonStatus:
    """The status of one daemon; `what_is_missing` is None for one that serves."""
    own = ports.of_daemon(known_ports, name)
    if not is_alive(started, name):
        return DaemonStatus(name, None, own, "not running")
    record = started[name]
    if processes.is_stopped(record):
        return DaemonStatus(name, record.pid, own, "stopped by a signal")
    return DaemonStatus(name, record.pid, own, what_is_missing(known_ports, name) or "serving")
