"""Applications, queues and nodes as the ResourceManager's web server shows them: reads without a JVM.

Owner: any thread; every call blocks for one HTTP request with a short timeout. Only `kill` changes an application.
Where it cannot be read (Kerberos, a filter, no address) it raises ResourceManagerWebError, and callers ask YARN by
Skein instead.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from yarrow.runtime.common.http_answers import body_of
from yarrow.runtime.yarn.gateways import (
    ApplicationNotFoundError,
    ApplicationReport,
    FinalStatus,
    YarnError,
    YarnState,
)
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.staging_root import hadoop_user

_TIMEOUT: Final = 5.0
#: An answer longer than this is no answer about applications of one user.
_MAX_BYTES: Final = 64 * 1024 * 1024
_KILLED: Final = json.dumps({"state": "KILLED"})
#: An answer from address, status and body.
Decode = Callable[[str, int, bytes], Mapping[str, Any]]


class ResourceManagerWebError(YarnError):
    """The web server of the ResourceManager gives no answer to this client."""


@dataclass(frozen=True, slots=True)
class YarnApplicationStatus:
    """A report of an application, with facts that only the web server knows."""

    report: ApplicationReport
    #: `host:port` of Skein's ApplicationMaster, empty before it has registered.
    master_address: str


@dataclass(frozen=True, slots=True)
class LeafQueue:
    """A queue that takes applications."""

    name: str
    #: From the root, `root.a.b`; empty where the scheduler does not say.
    path: str
    state: str
    used_percent: float
    applications: int
    pending_containers: int
    #: Largest container in MiB and cores; 0 = not told.
    maximum_memory_mb: int
    maximum_vcores: int


@dataclass(frozen=True, slots=True)
class ClusterMetrics:
    """The whole cluster's resources."""

    active_nodes: int
    total_mb: int
    available_mb: int
    total_vcores: int
    available_vcores: int


@dataclass(frozen=True, slots=True)
class Node:
    """A NodeManager."""

    address: str
    state: str
    containers: int
    used_mb: int
    available_mb: int
    available_vcores: int
    labels: tuple[str, ...]


#: Properties that bound the attempts of an application; the first that is set counts.
ATTEMPTS_KEYS: Final = ("yarn.resourcemanager.am.global.max-attempts", "yarn.resourcemanager.am.max-attempts")


class ResourceManagerWeb:
    """A reader of one cluster; `addresses` are tried in their order, the one that answered last first."""

    def __init__(self, addresses: Sequence[str], timeout: float = _TIMEOUT) -> None:
        self._addresses = tuple(addresses)
        self._timeout = timeout
        self._answered = ""

    @staticmethod
    def of(hadoop: HadoopConfiguration) -> ResourceManagerWeb:
        """The web server that Hadoop's configuration names."""
        return ResourceManagerWeb(hadoop.resource_manager_web_addresses())

    def application(self, application_id: str) -> YarnApplicationStatus:
        """Raises ApplicationNotFoundError."""
        try:
            answer = self._get(f"/ws/v1/cluster/apps/{quote(application_id, safe='')}")
        except _NotFoundError:
            raise ApplicationNotFoundError(
                f"YARN knows no application {application_id}, or has forgotten it:"
                " see `yarn application -list -appStates ALL`."
            ) from None
        return _status(answer["app"])

    def applications(
        self, user: str | None = None, name: str | None = None
    ) -> Sequence[YarnApplicationStatus]:
        """Applications of Skein that have not ended, oldest first."""
        states = ",".join(state.value for state in YarnState if not state.has_ended)
        query = f"states={states}&applicationTypes=skein" + (f"&user={quote(user, safe='')}" if user else "")
        found = (self._get(f"/ws/v1/cluster/apps?{query}").get("apps") or {}).get("app") or []
        statuses = [_status(application) for application in found]
        chosen = [one for one in statuses if name is None or one.report.name == name]
        return sorted(chosen, key=lambda one: one.report.start_ms)

    def living(self, tag: str) -> list[tuple[str, frozenset[str]]]:
        """Id and tags of each application of any type with a tag that has not ended."""
        states = ",".join(state.value for state in YarnState if not state.has_ended)
        path = f"/ws/v1/cluster/apps?states={states}&applicationTags={quote(tag, safe='')}"
        found = (self._get(path).get("apps") or {}).get("app") or []
        reports = [_status(application).report for application in found]
        return [(report.application_id, report.tags) for report in reports]

    def kill(self, application_id: str) -> None:
        """Has YARN end an application, in the name of this process's user.

        Raises ResourceManagerWebError where the web server asks for a login.
        """
        user = quote(hadoop_user(), safe="")
        self._get(f"/ws/v1/cluster/apps/{quote(application_id, safe='')}/state?user.name={user}", end=True)

    def leaf_queues(self) -> Sequence[LeafQueue]:
        """Empty when the scheduler shows none of the forms known here."""
        return list(_leaves(self._get("/ws/v1/cluster/scheduler")["scheduler"]["schedulerInfo"]))

    def metrics(self) -> ClusterMetrics:
        """The cluster's resources."""
        found = self._get("/ws/v1/cluster/metrics")["clusterMetrics"]
        return ClusterMetrics(
            active_nodes=int(found.get("activeNodes", 0)),
            total_mb=int(found.get("totalMB", 0)),
            available_mb=int(found.get("availableMB", 0)),
            total_vcores=int(found.get("totalVirtualCores", 0)),
            available_vcores=int(found.get("availableVirtualCores", 0)),
        )

    def nodes(self) -> Sequence[Node]:
        """All nodes, whatever their state."""
        found = (self._get("/ws/v1/cluster/nodes").get("nodes") or {}).get("node") or []
        return [
            Node(
                address=str(node.get("id", "")),
                state=str(node.get("state", "")),
                containers=int(node.get("numContainers", 0)),
                used_mb=int(node.get("usedMemoryMB", 0)),
                available_mb=int(node.get("availMemoryMB", 0)),
                available_vcores=int(node.get("availableVirtualCores", 0)),
                labels=tuple(node.get("nodeLabels") or ()),
            )
            for node in found
        ]

    def node_labels(self) -> frozenset[str]:
        """Names of the labels that nodes may have; empty also where YARN uses none."""
        found = self._get("/ws/v1/cluster/get-node-labels").get("nodeLabelInfo") or []
        return frozenset(str(one["name"]) for one in (found if isinstance(found, list) else [found]))

    def most_attempts(self) -> int | None:
        """The most starts of an ApplicationMaster by YARN; None if unknown."""
        for key in ATTEMPTS_KEYS:
            try:
                value = self._get(f"/conf?name={key}")["property"]["value"]
            except _NotFoundError:
                continue
            except (LookupError, TypeError) as error:
                raise ResourceManagerWebError(
                    f"the ResourceManager does not report {key}: {error!r}"
                ) from None
            return int(value) if str(value).isdecimal() else None
        return None

    def diagnostics_of_attempt(self, application_id: str, number: int) -> str:
        """YARN's diagnostics of an attempt that has ended; "" for none. Raises ResourceManagerWebError."""
        attempt = f"{application_id.replace('application', 'appattempt')}_{number:06d}"
        path = f"/ws/v1/cluster/apps/{quote(application_id, safe='')}/appattempts/{quote(attempt, safe='')}"
        try:
            # Hadoop 3.5 cannot write this answer as JSON.
            return str(self._get(path, "application/xml", _diagnostics)["diagnosticsInfo"])
        except _NotFoundError:
            return ""

    def _get(
        self, path: str, form: str = "application/json", decode: Decode | None = None, end: bool = False
    ) -> Mapping[str, Any]:
        failures = []
        for address in sorted(self._addresses, key=lambda one: one != self._answered):
            try:
                answer = self._get_from(address, path, form, decode or _decoded, end)
            except ResourceManagerWebError as error:
                failures.append(str(error))
                continue
            self._answered = address
            return answer
        raise ResourceManagerWebError(
            "The web server of the ResourceManager (yarn.resourcemanager.webapp.address) cannot be read: "
            + ("; ".join(failures) or "no address is configured")
        )

    def _get_from(
        self, address: str, path: str, form: str, decode: Decode, end: bool = False
    ) -> Mapping[str, Any]:
        """The decoded answer; `end` asks for the end of the application, instead of reading."""
        url = urlsplit(address)
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(
                url.netloc, timeout=self._timeout, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(url.netloc, timeout=self._timeout)
        try:
            if end:
                headers = {"Accept": form, "Content-Type": form}
                connection.request("PUT", path, _KILLED, headers)
            else:
                connection.request("GET", path, headers={"Accept": form})
            response = connection.getresponse()
            data = body_of(response, _MAX_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ResourceManagerWebError(f"{address}: {error or type(error).__name__}") from None
        finally:
            connection.close()
        return decode(address, response.status, data)


class _NotFoundError(Exception):
    """The requested thing does not exist."""


def _decoded(address: str, status: int, data: bytes) -> Mapping[str, Any]:
    if status == 404 and not data:
        # A property that is not set.
        raise _NotFoundError
    try:
        answer = json.loads(data)
    except ValueError:
        # A ResourceManager that stands by answers with a text that names the other one.
        raise ResourceManagerWebError(
            f"{address}: status {status}, {data[:80].decode(errors='replace')!r}"
        ) from None
    if status in (400, 404) and isinstance(answer, dict):
        # 400 is for an id that is none.
        raise _NotFoundError
    # 202: an application is about to end.
    if status not in (200, 202) or not isinstance(answer, dict):
        raise ResourceManagerWebError(f"{address}: status {status}")
    return answer


def _diagnostics(address: str, status: int, data: bytes) -> Mapping[str, Any]:
    if status == 404:
        raise _NotFoundError
    try:
        if status != 200:
            raise ElementTree.ParseError
        return {"diagnosticsInfo": ElementTree.fromstring(data).findtext("diagnosticsInfo") or ""}
    except ElementTree.ParseError:
        raise ResourceManagerWebError(f"{address}: status {status} for an attempt") from None


def _status(application: Mapping[str, Any]) -> YarnApplicationStatus:
    tags = str(application.get("applicationTags") or "")
    report = ApplicationReport(
        application_id=str(application["id"]),
        name=str(application.get("name") or ""),
        user=str(application.get("user") or ""),
        queue=str(application.get("queue") or ""),
        state=YarnState(str(application["state"])),
        final_status=FinalStatus(str(application.get("finalStatus") or "UNDEFINED")),
        diagnostics=str(application.get("diagnostics") or ""),
        tracking_url=str(application.get("trackingUrl") or ""),
        tags=frozenset(tag for tag in tags.split(",") if tag),
        start_ms=int(application.get("startedTime") or 0),
    )
    return YarnApplicationStatus(
        report=report,
        master_address=_master_address(application),
    )


def _master_address(application: Mapping[str, Any]) -> str:
    address = str(application.get("amRPCAddress") or "")
    return "" if address.endswith(":-1") or address.startswith("N/A") else address


def _leaves(queue: Mapping[str, Any]) -> Iterator[LeafQueue]:
    for key in ("queues", "rootQueue", "childQueues"):
        inner = queue.get(key)
        if isinstance(inner, Mapping):
            inner = inner.get("queue", inner)
        if inner:
            for child in inner if isinstance(inner, list) else [inner]:
                yield from _leaves(child)
            return
    maximum = queue.get("maximumAllocation") or _partition_maximum(queue)
    yield LeafQueue(
        name=str(queue.get("queueName") or "").rpartition(".")[2],
        path=str(queue.get("queuePath") or queue.get("queueName") or ""),
        state=str(queue.get("state") or "RUNNING"),
        used_percent=float(queue.get("absoluteUsedCapacity") or queue.get("usedCapacity") or 0.0),
        applications=int(queue.get("numApplications") or queue.get("numActiveApps") or 0),
        pending_containers=int(queue.get("pendingContainers") or 0),
        maximum_memory_mb=int(maximum.get("memory-mb") or maximum.get("memory") or 0),
        maximum_vcores=int(maximum.get("vcores") or maximum.get("vCores") or 0),
    )


def _partition_maximum(queue: Mapping[str, Any]) -> Mapping[str, Any]:
    """The largest container as the capacity scheduler writes it: beside each resource of a partition."""
    partitions = (queue.get("capacities") or {}).get("queueCapacitiesByPartition") or []
    for partition in partitions:
        resources = (partition.get("configuredMinResource") or {}).get("resourceInformations") or {}
        found = resources.get("resourceInformation") or []
        if found:
            return {str(one.get("name")): int(one.get("maximumAllocation") or 0) for one in found}
    return {}
