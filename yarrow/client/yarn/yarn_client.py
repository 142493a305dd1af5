"""YarnClient: asks YARN on behalf of a client, by the fastest way there is.

It reads from the ResourceManager's web server, and acts through Skein's driver.

Owner: one client thread; every call blocks. The driver is a JVM that takes some seconds to start. `begin`
starts it, or the first call that needs it, never a read that the web server answers. It ends with `close`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from yarrow.client.yarn.container_logs import gathered_logs, last_words
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.config.options import security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import (
    ApplicationNotFoundError,
    ApplicationReport,
    ApplicationSubmission,
    YarnClientGateway,
    YarnError,
)
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration, check_answers
from yarrow.runtime.yarn.hadoop_overlay import client_properties
from yarrow.runtime.yarn.resource_manager_web import (
    ATTEMPTS_KEYS,
    ClusterMetrics,
    LeafQueue,
    ResourceManagerWeb,
    ResourceManagerWebError,
    YarnApplicationStatus,
)
from yarrow.runtime.yarn.secrets import skein_pair
from yarrow.runtime.yarn.skein_driver import SkeinDriver

log = logging.getLogger(__name__)

#: Seconds in which a ResourceManager or NameNode must accept a connection.
CONNECT_SECONDS: Final = 5.0


class YarnClient:
    """The YarnClientGateway of one Hadoop cluster.

    `credentials` are for connections to the applications it talks to.
    """

    def __init__(
        self, config: Settings, hadoop: HadoopConfiguration, credentials: tuple[bytes, bytes], clock: Clock
    ) -> None:
        self.hadoop = hadoop
        self._credentials = credentials
        self._clock = clock
        self._web: ResourceManagerWeb | None = ResourceManagerWeb.of(hadoop)
        self._config = config
        self._driver: SkeinDriver | None = None
        self._opened: YarnClientGateway | None = None
        self._checked = False

    def begin(self) -> None:
        """Starts the driver in the background, for a coming submission."""
        self._own_driver().begin()

    def check(self) -> None:
        """Raises YarnError if ResourceManager or NameNode accept no connection: Hadoop's clients would try for long."""
        if not self._checked:
            manager = self.hadoop.resource_manager_addresses()
            what = "YARN's ResourceManager"
            check_answers(manager, what, "yarn.resourcemanager.address", self.hadoop, CONNECT_SECONDS)
            name_nodes = self.hadoop.name_node_addresses()
            check_answers(name_nodes, "HDFS's NameNode", "fs.defaultFS", self.hadoop, CONNECT_SECONDS)
            self._checked = True

    def submit(self, submission: ApplicationSubmission) -> str:
        """Uploads the local resources and submits; returns the application's id."""
        self.check()
        return self._gateway().submit(submission)

    def status(self, application_id: str) -> YarnApplicationStatus:
        """Raises ApplicationNotFoundError."""
        if self._web is not None:
            try:
                return self._web.application(application_id)
            except ResourceManagerWebError as error:
                self._give_up_web(error)
        self.check()
        return YarnApplicationStatus(self._gateway().report(application_id), "")

    def report(self, application_id: str) -> ApplicationReport:
        """Raises ApplicationNotFoundError."""
        return self.status(application_id).report

    def has_ended(self, application_id: str) -> bool:
        """Whether YARN reports its end; an unknown application may belong to another cluster."""
        try:
            return self.report(application_id).state.has_ended
        except ApplicationNotFoundError:
            return False

    def applications(self, name: str | None = None) -> Sequence[ApplicationReport]:
        """Live applications of all users whom YARN lets this one see."""
        if self._web is not None:
            try:
                return [status.report for status in self._web.applications(name=name)]
            except ResourceManagerWebError as error:
                self._give_up_web(error)
        self.check()
        return self._gateway().applications(name)

    def kill(self, application_id: str, even_ended: bool = False) -> None:
        """Kills an application. With `even_ended`, also removes an ended one's leftovers on HDFS.

        Raises ApplicationNotFoundError.
        """
        if self.status(application_id).report.state.has_ended and not even_ended:
            return
        self.check()
        self._gateway().kill(application_id)

    def value(self, application_id: str, key: str, timeout: float) -> str:
        """Waits for a value of the application's key-value store. Raises YarnError if it does not come in time."""
        address = self.status(application_id).master_address
        if address:
            return self.value_at(address, application_id, key, timeout)
        return self._gateway().value(application_id, key, timeout)

    def value_at(self, master_address: str, application_id: str, key: str, timeout: float) -> str:
        """Like `value`, from Skein's ApplicationMaster at `master_address`."""
        return self._gateway().value_at(master_address, application_id, key, timeout)

    def last_words(self, application_id: str, timeout: float) -> str:
        """The end of a failed application's log; empty if YARN has not gathered it in time."""
        deadline = self._clock.monotonic() + timeout
        pause = threading.Event()
        while (left := deadline - self._clock.monotonic()) > 0:
            said = last_words(gathered_logs(application_id, _environment(self.hadoop), left))
            if said:
                return said
            pause.wait(1.0)
        return ""

    def credentials(self) -> tuple[bytes, bytes]:
        """The certificate and key, as PEM, that connections to applications submitted by this object need."""
        return self._credentials

    def leaf_queues(self) -> Sequence[LeafQueue]:
        """The queues that accept applications; empty if the web server does not tell."""
        try:
            return [] if self._web is None else self._web.leaf_queues()
        except (ResourceManagerWebError, LookupError) as error:
            log.debug("Queues cannot be read: %s", error)
            return []

    def node_labels(self) -> frozenset[str] | None:
        """The cluster's node labels; None if the web server does not tell."""
        try:
            return None if self._web is None else self._web.node_labels()
        except (ResourceManagerWebError, LookupError) as error:
            log.debug("Node labels cannot be read: %s", error)
            return None

    def most_attempts(self) -> int | None:
        """Most starts of an ApplicationMaster by YARN; None if unknown."""
        try:
            if self._web is not None and (told := self._web.most_attempts()) is not None:
                return told
        except ResourceManagerWebError as error:
            log.debug("YARN's limit of attempts cannot be read: %s", error)
        values = [self.hadoop.get(key) for key in ATTEMPTS_KEYS]
        return next((int(value) for value in values if value.isdecimal()), None)

    def metrics(self) -> ClusterMetrics | None:
        """The cluster's resources; None if the web server does not tell."""
        try:
            return None if self._web is None else self._web.metrics()
        except (ResourceManagerWebError, LookupError) as error:
            log.debug("The cluster's resources cannot be read: %s", error)
            return None

    def close(self) -> None:
        """Ends the driver."""
        if self._opened is not None:
            self._opened.close()
        if self._driver is not None:
            self._driver.close()

    def _own_driver(self) -> SkeinDriver:
        if self._driver is None:
            # Made only now: a read through the web server needs no certificate, and no keytab.
            self._driver = SkeinDriver(
                skein_pair(self._clock),
                _environment(self.hadoop),
                client_properties(self._config),
                _keytab(self._config, self.hadoop.is_secured),
            )
        return self._driver

    def _gateway(self) -> YarnClientGateway:
        if self._opened is None:
            # Its import with gRPC's takes longer than a whole `run` into an answering session.
            from yarrow.runtime.yarn.skein_bridge import SkeinClientGateway

            self._opened = SkeinClientGateway(self._own_driver(), self._credentials, self._clock)
        return self._opened

    def _give_up_web(self, error: YarnError) -> None:
        log.debug("%s; YARN is asked by Skein from now on", error)
        self.check()
        self._web = None


def _environment(hadoop: HadoopConfiguration) -> Mapping[str, str]:
    """The driver's environment: it uses the configuration that was read here."""
    return {**os.environ, "HADOOP_CONF_DIR": str(hadoop.folder), "YARN_CONF_DIR": str(hadoop.folder)}


def _keytab(config: Settings, is_secured: bool) -> tuple[str, str] | None:
    keytab, principal = config.get(security.KERBEROS_KEYTAB), config.get(security.KERBEROS_PRINCIPAL)
    if keytab is None and principal is None:
        if is_secured and not config.get(security.KERBEROS_USE_TICKET_CACHE):
            raise YarnError(
                f"{security.KERBEROS_USE_TICKET_CACHE.key} is false, and the cluster asks for Kerberos: set"
                f" {security.KERBEROS_KEYTAB.key} and {security.KERBEROS_PRINCIPAL.key}, or allow the ticket cache."
            )
        return None
    if not keytab or not principal:
        raise YarnError(
            f"{security.KERBEROS_KEYTAB.key} and {security.KERBEROS_PRINCIPAL.key} are set together or not"
            " at all."
        )
    if not os.path.isfile(keytab):
        raise YarnError(f"{security.KERBEROS_KEYTAB.key} is {keytab}, but there is no such file.")
    return os.path.abspath(keytab), principal
