"""The interfaces to YARN: one Protocol for clients, one for the ApplicationMaster.

Owner: implementations block; endpoints call them through an executor. Implemented by `skein_bridge`, the only module
that knows Skein; tests without a cluster have their own small doubles of these Protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from yarrow.runtime.common.errors import YarrowError


class YarnError(YarrowError):
    """YARN refused or cannot be reached; the message names the setting, what was tried and what to do."""


class YarnUnreachableError(YarnError):
    """Nobody answers at the addresses of ResourceManager or NameNode; this says nothing of any application."""


class ApplicationNotFoundError(YarnError):
    """There is no application of that id, or YARN has forgotten it."""


class EndUnknownError(YarnError):
    """The ApplicationMaster was asked to end and has not answered: it may have ended by that, or before."""


class YarnState(Enum):
    """YARN's states of an application, those before RUNNING in their order."""

    NEW = "NEW"
    NEW_SAVING = "NEW_SAVING"
    SUBMITTED = "SUBMITTED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def has_ended(self) -> bool:
        return self in (YarnState.FINISHED, YarnState.FAILED, YarnState.KILLED)


class FinalStatus(Enum):
    """The final status of an application, as YARN shows it."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    UNDEFINED = "UNDEFINED"


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """YARN's view of an application."""

    application_id: str
    name: str
    user: str
    queue: str
    state: YarnState
    final_status: FinalStatus
    diagnostics: str
    #: Through YARN's proxy.
    tracking_url: str
    tags: frozenset[str]
    start_ms: int


@dataclass(frozen=True, slots=True)
class ContainerShape:
    """Memory in MiB and cores of a container."""

    memory_mb: int
    vcores: int
    node_label: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """A file or archive that YARN puts into a container under `target`."""

    target: str
    #: Local path (uploaded with the application, visible to it alone) or hdfs:// URL.
    source: str
    is_archive: bool = False
    #: True = kept on a node for all applications of the user (only hdfs:// URLs); else unpacked for each application.
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationSubmission:
    """The description of an application for YARN."""

    name: str
    queue: str
    tags: frozenset[str] = frozenset()
    max_attempts: int = 1
    node_label: str = ""
    master: ContainerShape
    master_script: str
    master_resources: Sequence[Resource]
    master_environment: Mapping[str, str] = field(default_factory=dict)
    #: Local path of log4j.properties for Skein's Java ApplicationMaster; empty = Skein's own.
    master_log_settings: str = ""
    task_executor: ContainerShape
    task_executor_script: str
    task_executor_resources: Sequence[Resource]
    task_executor_environment: Mapping[str, str] = field(default_factory=dict)
    #: For drivers of bounded jobs, each asked for when such a job begins.
    spark_driver: ContainerShape
    spark_driver_script: str
    spark_driver_resources: Sequence[Resource]
    spark_driver_environment: Mapping[str, str] = field(default_factory=dict)
    #: hdfs:// URLs of further file systems for which tokens are taken.
    file_systems: Sequence[str] = ()
    view_users: Sequence[str] = ()
    view_groups: Sequence[str] = ()
    modify_users: Sequence[str] = ()
    modify_groups: Sequence[str] = ()


class YarnClientGateway(Protocol):
    """The requests of clients to YARN. Every call may block and raises YarnError."""

    def submit(self, submission: ApplicationSubmission) -> str:
        """Uploads the local resources and submits; the application's id."""
        ...

    def report(self, application_id: str) -> ApplicationReport:
        """Raises ApplicationNotFoundError."""
        ...

    def applications(self, name: str | None = None) -> Sequence[ApplicationReport]:
        """Our applications that have not ended."""
        ...

    def kill(self, application_id: str) -> None:
        """Kill an application; no effect on one that has ended."""
        ...

    def value(self, application_id: str, key: str, timeout: float) -> str:
        """A value of the application's key-value store, waited for; YarnError when it does not come in time."""
        ...

    def value_at(self, master_address: str, application_id: str, key: str, timeout: float) -> str:
        """The same, of the master at this address, without asking YARN for it."""
        ...

    def credentials(self) -> tuple[bytes, bytes]:
        """The certificate and key, as PEM, that connections to applications submitted by this object need."""
        ...

    def close(self) -> None:
        """End the processes started for it (Skein's driver)."""
        ...


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """A container of a service, as the ApplicationMaster sees it."""

    #: The bridge's name for the container, stable from the request on.
    handle: str
    #: WAITING, REQUESTED, RUNNING, SUCCEEDED, FAILED, KILLED.
    state: str
    #: YARN's id; empty before it is granted.
    container_id: str
    node: str
    #: YARN's text about its end.
    exit_message: str

    @property
    def has_ended(self) -> bool:
        return self.state in ("SUCCEEDED", "FAILED", "KILLED")


class YarnMasterGateway(Protocol):
    """The requests of the ApplicationMaster to YARN. Every call may block and raises YarnError."""

    def request_container(self, service: str, environment: Mapping[str, str]) -> str:
        """Asks for one more container of a service; its handle."""
        ...

    def containers(self, service: str) -> Sequence[ContainerStatus]:
        """All containers of a service requested in this attempt, ended ones too."""
        ...

    def release_container(self, handle: str) -> None:
        """Gives one back, granted or not; no effect when it has ended."""
        ...

    def publish(self, key: str, value: str) -> None:
        """Writes into the application's key-value store."""
        ...

    def add_page(self, route: str, address: str, link_name: str) -> None:
        """Makes `address` reachable below the tracking URL."""
        ...

    def set_progress(self, progress: float) -> None:
        """0.0 to 1.0."""
        ...

    def finish(self, status: FinalStatus, diagnostics: str) -> None:
        """Ends the application with this status and text; the process has little time left afterwards.

        EndUnknownError.
        """
        ...
