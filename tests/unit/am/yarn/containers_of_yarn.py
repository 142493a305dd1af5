"""A YarnMasterGateway without YARN: containers are granted and ended by the test."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from yarrow.runtime.yarn.gateways import ContainerStatus, FinalStatus, YarnError
from yarrow.runtime.yarn.layout import TASK_EXECUTOR_SERVICE


class ContainersOfYarn:
    """Keeps what it was asked for; calls come from threads of the driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, ContainerStatus] = {}
        #: Services and variables of requested containers, in order.
        self.services: list[str] = []
        self.environments: list[Mapping[str, str]] = []
        self.released: list[str] = []
        self.published: dict[str, str] = {}
        self.ends: list[tuple[FinalStatus, str]] = []
        self.refusal = ""
        #: Why the next containers that are given back are not taken.
        self.kept: list[str] = []
        self.pages: list[str] = []
        self.progress: list[float] = []

    # The gateway.

    def request_container(self, service: str, environment: Mapping[str, str]) -> str:
        if self.refusal:
            raise YarnError(self.refusal)
        with self._lock:
            self.services.append(service)
            self.environments.append(environment)
        return self.appear(service)

    def containers(self, service: str) -> Sequence[ContainerStatus]:
        with self._lock:
            return tuple(one for one in self._states.values() if one.handle.startswith(f"{service}_"))

    def release_container(self, handle: str) -> None:
        with self._lock:
            if self.kept:
                raise YarnError(self.kept.pop(0))
            self.released.append(handle)
        self.end(handle, "KILLED", "released")

    def publish(self, key: str, value: str) -> None:
        with self._lock:
            self.published[key] = value

    def add_page(self, route: str, address: str, link_name: str) -> None:
        """There is no proxy; where it would go."""
        self.pages.append(address)

    def set_progress(self, progress: float) -> None:
        self.progress.append(progress)

    def finish(self, status: FinalStatus, diagnostics: str) -> None:
        self.ends.append((status, diagnostics))

    # The test.

    def appear(self, service: str = TASK_EXECUTOR_SERVICE) -> str:
        """A container that is asked for, by whomever."""
        with self._lock:
            handle = f"{service}_{len(self._states)}"
            self._states[handle] = ContainerStatus(handle, "REQUESTED", "", "", "")
        return handle

    def grant(self, handle: str) -> None:
        with self._lock:
            self._states[handle] = ContainerStatus(handle, "RUNNING", f"container_{handle}", "node1:8042", "")

    def end(self, handle: str, state: str, message: str) -> None:
        with self._lock:
            known = self._states[handle]
            self._states[handle] = ContainerStatus(handle, state, known.container_id, known.node, message)
