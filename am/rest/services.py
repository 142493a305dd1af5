"""The services and options of the REST server.

Owner: the assembly of the control plane. Nothing here imports the web framework, so that importing this
module is cheap.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import platform
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import msgspec

import yarrow.runtime.config.options.metrics as metric_options
import yarrow.runtime.config.options.rest as rest_options
import yarrow.runtime.config.options.web as web_options
from yarrow.am.dispatcher.submission import submit_job_graph
from yarrow.am.rest.activity import ClientActivity
from yarrow.am.rest.errors import RestServerError
from yarrow.am.rest.views.application import WholeApplication
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.ids import IdFactory, JobID, RandomIdFactory, ResourceID
from yarrow.runtime.config.options import cluster, security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.web_pages import chosen_archive
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.gateways import (
    DispatcherGateway,
    ResourceManagerGateway,
    TaskExecutorGateway,
)

_log = logging.getLogger(__name__)

#: The version of Flink whose API this is; tools look at it.
FLINK_VERSION = "2.3.0"
#: Most seconds of a program's main for a plan or a submission.
PROGRAM_TIMEOUT = 120.0


class RestServices(msgspec.Struct, frozen=True):
    """The cluster as the REST API reaches it."""

    dispatcher: DispatcherGateway
    resource_manager: ResourceManagerGateway
    #: The gateway of the TaskExecutor at an address of its registration.
    connect_task_executor: Callable[[str], TaskExecutorGateway]
    #: The cluster's configuration; shown with its secrets hidden.
    settings: Settings = msgspec.field(default_factory=Settings)
    #: Stores a payload and returns its key; None = the Dispatcher does.
    store_blob: Callable[[bytes], Awaitable[str]] | None = None
    #: Folder of the control plane's log files; None = it has none.
    log_directory: Path | None = None
    #: The control plane's own log in that folder; None = the first that ends in `.log`.
    log_file_name: str | None = None
    #: YARN's id of a TaskExecutor's container; "" = it has none.
    container_of: Callable[[ResourceID], str] = lambda resource_id: ""
    #: The attempt of an application on YARN, and the most attempts that YARN starts; 0 = no YARN.
    attempt: int = 0
    max_attempts: int = 0
    #: The application that all jobs belong to; None = each job is one.
    application: WholeApplication | None = None
    #: Bytes that the control plane's process may use; None = what the machine has.
    memory_limit: int | None = None
    #: Tells when the application's delegation tokens end, in epoch milliseconds; 0 = it has none that end.
    tokens_end_ms: Callable[[], int] = lambda: 0
    #: The requests of clients are noted here.
    activity: ClientActivity = msgspec.field(default_factory=ClientActivity)
    clock: Clock = msgspec.field(default_factory=SystemClock)
    ids: IdFactory = msgspec.field(default_factory=RandomIdFactory)

    async def put_blob(self, data: bytes) -> str:
        """Stores a payload under its SHA-256 and returns that key."""
        return await (self.store_blob or self.dispatcher.put_blob)(data)

    async def submit(self, graph: JobGraph) -> JobID:
        """Submits a job; a large graph goes through the blob store."""
        return await submit_job_graph(self.dispatcher, self.put_blob, graph)


class EntranceKind(Enum):
    """How clients enter at a listener; am/rest/entrances.py holds the checks."""

    LOOPBACK = "loopback"
    TOKEN = "token"
    PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Options of the server, read once; times are seconds."""

    entrance: EntranceKind = EntranceKind.LOOPBACK
    #: SHA-256 of the token, for EntranceKind.TOKEN; EntranceKind.LOOPBACK becomes TOKEN if other hosts reach
    #: it.
    token_hash: bytes = field(default=b"", repr=False)
    #: TLS; None = plain.
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    max_request_bytes: int = 100 << 20
    #: From the first byte of a connection to the end of the request's head.
    head_timeout: float = 15.0
    #: Longest pause between two pieces of a body, and the whole of it.
    body_pause_timeout: float = 30.0
    body_timeout: float = 300.0
    #: Seconds that an idle connection stays open.
    keep_alive: int = 300
    max_connections: int = 1000
    #: Most connections of one host that have not sent the head of a request, if a token is required.
    max_waiting_connections: int = 64
    program_timeout: float = PROGRAM_TIMEOUT
    submit_enabled: bool = True
    cancel_enabled: bool = True
    rescale_enabled: bool = True
    #: Flink's YARN proxy knows GET only: cancelling by GET is off unless configured.
    cancel_by_get: bool = False
    refresh_interval_ms: int = 3000
    #: Origin whose pages may read, "*" = any; None = only the server's own.
    allow_origin: str | None = None
    #: The path below which clients see this server, where something in front of it takes that away; "" = `/`.
    external_base: str = ""
    #: Names, besides addresses and this host's own, by which requests that change something may address the
    #: server.
    host_names: frozenset[str] = frozenset()
    #: Folder of programs; None = a temporary folder, made when needed and removed at the end.
    upload_directory: Path | None = None
    temporary_directory: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    exception_history: int = 16
    #: Archive of the pages at `/`; None = there is none.
    pages: Path | None = None
    #: Seconds for which the result of an asynchronous operation is kept.
    operation_store_seconds: float = 300.0
    #: Scheme of plain paths in requests: fs.default-scheme.
    default_scheme: str | None = None
    #: Raises YarrowError for a savepoint target that not all processes of this cluster reach.
    check_savepoint_target: Callable[[str], None] = lambda path: None

    @classmethod
    def of(cls, settings: Settings) -> RestSettings:
        """Reads Flink's `rest.*` and `web.*` keys."""
        upload = settings.get(web_options.UPLOAD_DIR)
        temporary = settings.get(web_options.TMP_DIR)
        address = settings.get(rest_options.ADDRESS)
        keep_alive = max(1, int(settings.get(rest_options.IDLENESS_TIMEOUT).seconds))
        return cls(
            max_request_bytes=settings.get(rest_options.SERVER_MAX_CONTENT_LENGTH).bytes,
            body_timeout=float(keep_alive),
            keep_alive=keep_alive,
            program_timeout=min(PROGRAM_TIMEOUT, settings.get(web_options.TIMEOUT).seconds),
            submit_enabled=settings.get(web_options.SUBMIT_ENABLE),
            cancel_enabled=settings.get(web_options.CANCEL_ENABLE),
            rescale_enabled=settings.get(web_options.RESCALE_ENABLE),
            refresh_interval_ms=int(settings.get(web_options.REFRESH_INTERVAL).seconds * 1000),
            allow_origin=settings.get(web_options.ACCESS_CONTROL_ALLOW_ORIGIN),
            host_names=frozenset({address.lower()} if address else ()),
            upload_directory=Path(upload) if upload else None,
            temporary_directory=Path(temporary or tempfile.gettempdir()),
            exception_history=settings.get(web_options.EXCEPTION_HISTORY_SIZE),
            pages=chosen_archive(settings),
            operation_store_seconds=settings.get(rest_options.ASYNC_STORE_DURATION).seconds,
            default_scheme=settings.get(cluster.DEFAULT_SCHEME),
        )


def is_loopback(host: str) -> bool:
    """Whether only this host reaches a listener at that address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def for_other_hosts(settings: RestSettings, config: Settings, expected: bytes) -> RestSettings:
    """The settings of a listener that other hosts reach.

    It requires the token with the `expected` hash, unless the configuration says none.
    """
    if config.get(security.REST_AUTHENTICATION) is security.RestAuthentication.TOKEN:
        return replace(settings, entrance=EntranceKind.TOKEN, token_hash=expected)
    _log.warning(
        "%s is none: everybody who reaches the port of REST can run programs on this cluster",
        security.REST_AUTHENTICATION.key,
    )
    return settings


def settings_for_address(settings: RestSettings, config: Settings, address: str) -> RestSettings:
    """The settings of a server that is bound to the numeric `address`.

    Other hosts reach every address except loopback: a token is required there, unless the configuration says
    none. Raises RestServerError if neither is given.
    """
    if settings.entrance is EntranceKind.TOKEN or is_loopback(address):
        return settings
    if settings.entrance is EntranceKind.PROXY:
        raise RestServerError(
            f"the listener for YARN's proxy asks for no token: it may not listen on {address}, only on a "
            "loopback address"
        )
    if not settings.token_hash and (
        config.get(security.REST_AUTHENTICATION) is security.RestAuthentication.TOKEN
    ):
        raise RestServerError(
            f"REST may not listen on {address}, which other hosts reach: this server has no token to ask "
            f"for. Leave {rest_options.BIND_ADDRESS.key} out, or set {security.REST_AUTHENTICATION.key} to "
            "none, with which everybody who reaches the port runs code here"
        )
    return for_other_hosts(settings, config, settings.token_hash)


def prometheus_is_on(settings: Settings) -> bool:
    """Whether the configuration enables a Prometheus endpoint: by port, class or list of reporters."""
    listed = settings.get(metric_options.REPORTERS)
    if listed is not None:
        return "prom" in listed
    options = (metric_options.PROMETHEUS_PORT, metric_options.PROMETHEUS_FACTORY)
    return any(settings.is_set(option) for option in options)


def time_zone() -> tuple[str, int]:
    """Name and offset (milliseconds) of the host's time zone."""
    local = datetime.datetime.fromtimestamp(SystemClock().epoch_ms() / 1000).astimezone()
    offset = local.utcoffset() or datetime.timedelta()
    return local.tzname() or "UTC", int(offset.total_seconds() * 1000)


def interpreter() -> str:
    """Name and version of the interpreter."""
    return f"{platform.python_implementation()} {platform.python_version()}"
