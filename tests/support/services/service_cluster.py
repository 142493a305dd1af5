"""ServiceCluster: what clusters of services have in common: processes of one folder, that any process may look at.

Owner: the caller's thread; every method blocks. What runs is known from the cluster's folder alone. Which processes
there are, how they start and when they serve is the knowledge of a subclass.
"""

from __future__ import annotations

import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from tests.support.services import class_archive, processes, serving
from tests.support.services.daemon_status import DaemonStatus, is_alive, status_of
from tests.support.services.errors import ServiceError
from tests.support.services.folder_lock import locked
from tests.support.services.processes import ProcessRecord

_KILL_SECONDS = 10.0


class Folder(Protocol):
    """The folder of a cluster."""

    @property
    def root(self) -> Path: ...

    def log_of(self, name: str) -> Path:
        """The log of a process."""
        ...


class Known(Protocol):
    """What a cluster's folder tells of it."""

    ports: dict[str, int]
    jars: str
    java_home: str
    processes: dict[str, ProcessRecord]


K = TypeVar("K", bound=Known)


class ServiceCluster(ABC, Generic[K]):
    """One cluster in a folder of its own."""

    #: The names of the cluster and of one of its processes, and the script that starts the cluster.
    service: ClassVar[str]
    member: ClassVar[str]
    script: ClassVar[str]
    error: ClassVar[type[ServiceError]] = ServiceError

    # What a subclass knows.

    @property
    @abstractmethod
    def _folder(self) -> Folder:
        """The folder of the cluster."""

    @abstractmethod
    def up(self) -> bool:
        """Starts every process that does not run, and waits until all serve; False when all did already."""

    @abstractmethod
    def _load(self) -> K | None:
        """What runs; None where no cluster was made."""

    @abstractmethod
    def _save(self, known: K) -> None:
        """Stores what runs."""

    @abstractmethod
    def _names(self, known: K) -> Sequence[str]:
        """The names of the processes, in the order to start them."""

    @abstractmethod
    def _possible_names(self) -> Sequence[str]:
        """The names that a caller may give."""

    @abstractmethod
    def _launch(self, known: K, name: str) -> None:
        """Starts a process, and stores that."""

    @abstractmethod
    def _what_is_missing(self, ports: dict[str, int], name: str) -> str | None:
        """Why a process that runs does not serve; None = it serves."""

    @abstractmethod
    def _stop(self, known: K, keep: bool) -> None:
        """Stops everything that was started; the folder stays if `keep`."""

    # What clusters have in common.

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *error: object) -> None:
        self.down()

    @property
    def directory(self) -> Path:
        """The folder of everything that belongs to this cluster."""
        return self._folder.root

    def down(self, keep: bool = False) -> bool:
        """Stops exactly what was started; removes the folder unless `keep`. False when there was nothing."""
        with locked(self.directory):
            known = self._load()
            if known is None:
                return False
            self._stop(known, keep)
            class_archive.write(known.java_home, Path(known.jars))
            known.processes.clear()
            self._save(known)
            if not keep:
                shutil.rmtree(self.directory)
            return True

    def _kill(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to one process; after SIGKILL it waits until the process is gone."""
        self._checked(name)
        record = self._state().processes.get(name)
        if record is None or not processes.send(record, number):
            raise self.error(f"{name} does not run in {self.directory}: start it first")
        if number == signal.SIGKILL and processes.wait_until_ended([record], _KILL_SECONDS):
            raise self.error(f"{name} (process {record.pid}) does not end")

    def _start(self, name: str) -> bool:
        """Starts one process that has ended, on its ports and data; False when it runs. Waits for nothing."""
        self._checked(name)
        with locked(self.directory):
            known = self._state()
            if is_alive(known.processes, name):
                return False
            self._launch(known, name)
            return True

    def _wait_until_ready(self, names: Sequence[str], seconds: float) -> None:
        """Waits until these processes serve; none = all."""
        known = self._state()
        self._wait(known, [self._checked(name) for name in names] or self._names(known), seconds)

    def status(self) -> list[DaemonStatus]:
        """Every process; empty when there is no cluster."""
        known = self._load()
        if known is None:
            return []
        started, missing = known.processes, self._what_is_missing
        return [status_of(started, known.ports, name, missing) for name in self._names(known)]

    def _wait(self, known: K, names: Sequence[str], seconds: float) -> None:
        serving.wait_until_serving(
            names,
            seconds,
            lambda name: self._what_is_missing(known.ports, name),
            lambda name: is_alive(known.processes, name),
            self._folder.log_of,
        )

    def _state(self) -> K:
        known = self._load()
        if known is None:
            raise self.error(f"no {self.service} is in {self.directory}: bring it up with {self.script} up")
        return known

    def _checked(self, name: str) -> str:
        names = self._possible_names()
        if name not in names:
            raise self.error(
                f"{name} is no {self.member} of this {self.service}: it is one of {', '.join(names)}"
            )
        return name
