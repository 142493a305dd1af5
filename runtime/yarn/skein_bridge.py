"""YARN through Skein: the one module that imports `skein`; its types go no further.

Owner: any thread; every call blocks for a message to Skein's driver (client) or to its ApplicationMaster (master), so
endpoints call through an executor. Errors of Skein and YARN leave as YarnError (failures.py finds the words).
It starts no JVM before the first call that needs one, and holds no secret longer than the object that was given it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, Final

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.yarn.distutils_stand_in import distutils_stand_in
from yarrow.runtime.yarn.failures import UnknownQueueError, explain
from yarrow.runtime.yarn.gateways import (
    ApplicationNotFoundError,
    ApplicationReport,
    ApplicationSubmission,
    ContainerShape,
    ContainerStatus,
    EndUnknownError,
    FinalStatus,
    Resource,
    YarnError,
    YarnState,
)
from yarrow.runtime.yarn.layout import SPARK_DRIVER_SERVICE, TASK_EXECUTOR_SERVICE
from yarrow.runtime.yarn.skein_driver import SkeinDriver

with distutils_stand_in():
    import skein

log = logging.getLogger(__name__)


def _check_target(target: str) -> None:
    path = PurePosixPath(target)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{target!r} is no path below a container's folder")


# Skein 0.8.2 wants a plain name where YARN takes a path below the container's folder, and makes the folders on it.
# It has no option for that; tests/unit/runtime/test_private_members.py pins the function that is replaced.
skein.model._check_is_filename = _check_target

_ENDED: Final = ("SUCCEEDED", "FAILED", "KILLED")
_ALL_CONTAINER_STATES: Final = ("WAITING", "REQUESTED", "RUNNING", *_ENDED)
_NOT_ENDED: Final = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_UNKNOWN_APPLICATION: Final = re.compile(r"(Unknown|Invalid) ApplicationId")
#: For which a driver that runs is asked again: its machine may be busy, and gRPC gives a connection up after 20 s.
_DRIVER_PATIENCE: Final = 90.0
#: Between two attempts.
_DRIVER_PAUSE: Final = 0.5
#: Between two looks at a key that is not there yet.
_VALUE_POLL_SECONDS: Final = 0.05


class SkeinClientGateway:
    """YarnClientGateway: submits, reports and kills through a driver (a JVM) of its own, which ends with `close`.

    `credentials` is the pair, as PEM, for connections to the applications that this object submits or talks to.
    """

    def __init__(
        self,
        driver: SkeinDriver,
        credentials: tuple[bytes, bytes],
        clock: Clock,
        patience: float = _DRIVER_PATIENCE,
    ) -> None:
        """`patience`: seconds for which a driver that runs and does not answer is asked again."""
        self._patience = patience
        self._driver = driver
        self._certificate, self._key = credentials
        self._clock = clock
        self._lock = threading.Lock()
        self._client: Any = None

    def submit(self, submission: ApplicationSubmission) -> str:
        """Uploads the local resources and submits; the application's id."""
        security = _security(self._certificate, self._key)
        try:
            with _translated(f"submit the application {submission.name!r} to queue {submission.queue}"):
                # Not repeated: YARN may have taken the application without an answer.
                return str(self._connected().submit(_specification(submission, security)))
        except UnknownQueueError as error:
            raise YarnError(f"{error} There are: {', '.join(self.queues())}.") from error

    def report(self, application_id: str) -> ApplicationReport:
        """Raises ApplicationNotFoundError."""
        with _translated(f"read the report of {application_id}", application_id):
            return _report(self._asked(lambda client: client.application_report(application_id)))

    def applications(self, name: str | None = None) -> Sequence[ApplicationReport]:
        """Our applications that have not ended."""
        with _translated("list the applications on YARN"):
            found = self._asked(lambda client: client.get_applications(states=_NOT_ENDED, name=name or ""))
        return [_report(report) for report in found]

    def kill(self, application_id: str) -> None:
        """Kill an application; no effect on one that has ended."""
        with _translated(f"kill {application_id}", application_id):
            self._asked(lambda client: client.kill_application(application_id))

    def queues(self) -> Sequence[str]:
        """Names of the queues there are."""
        with _translated("list the queues of YARN"):
            return sorted(str(queue.name) for queue in self._asked(lambda client: client.get_all_queues()))

    def value(self, application_id: str, key: str, timeout: float) -> str:
        """A value of the application's key-value store, waited for; YarnError when it does not come in time."""
        with _translated(f"read {key} of {application_id}", application_id):
            report = self._asked(lambda client: client.application_report(application_id))
        if str(report.state) != "RUNNING":
            raise YarnError(
                f"{application_id} is {report.state} and not RUNNING: its ApplicationMaster cannot be asked"
                f" for {key}."
            )
        return self.value_at(f"{report.host}:{report.port}", application_id, key, timeout)

    def value_at(self, master_address: str, application_id: str, key: str, timeout: float) -> str:
        """As `value`, from Skein's ApplicationMaster at `master_address`, without a driver."""
        deadline = self._clock.monotonic() + timeout
        pause = threading.Event()
        with self._application(master_address, application_id) as application:
            while True:
                with _translated(f"read {key} of {application_id}", application_id):
                    value = application.kv.get(key)
                if value is not None:
                    return str(value.decode())
                if self._clock.monotonic() > deadline:
                    raise YarnError(
                        f"The master of {application_id} has not published {key} within {timeout:g} s: see"
                        f" its log, `yarn logs -applicationId {application_id}`."
                    )
                pause.wait(_VALUE_POLL_SECONDS)

    def credentials(self) -> tuple[bytes, bytes]:
        """The certificate and key, as PEM, that connections to applications submitted by this object need."""
        return self._certificate, self._key

    def close(self) -> None:
        """Ends the driver."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        self._driver.close()

    def _connected(self) -> Any:
        """The connection to the driver, which has answered once."""
        with self._lock:
            if self._client is None:
                address = self._driver.address()
                security = _security(*self._driver.credentials)
                self._client = self._patiently(lambda: skein.Client(address=address, security=security))
            return self._client

    def _asked(self, call: Callable[[Any], Any]) -> Any:
        """The answer of the driver to a call that may be repeated."""
        client = self._connected()
        return self._patiently(lambda: call(client))

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Repeats a call that did not reach the driver while that runs. YarnError when it has ended."""
        end = self._clock.monotonic() + self._patience
        pause = threading.Event()
        while True:
            try:
                return call()
            except ConnectionError as error:
                if problem := self._driver.problem():
                    raise YarnError(problem) from error
                if self._clock.monotonic() > end:
                    raise
                log.info("Skein's driver runs and does not answer yet: %s", error)
            pause.wait(_DRIVER_PAUSE)

    @contextmanager
    def _application(self, address: str, application_id: str) -> Iterator[Any]:
        security = _security(self._certificate, self._key)
        application = skein.ApplicationClient(address, application_id, security=security)
        try:
            yield application
        finally:
            application.close()


class SkeinMasterGateway:
    """YarnMasterGateway: asks the Java ApplicationMaster of the container in which this process runs."""

    def __init__(self) -> None:
        with _translated("find Skein's ApplicationMaster of this container"):
            self._application = skein.ApplicationClient.from_current()
        self._added_pages: set[str] = set()

    @property
    def application_id(self) -> str:
        """YARN's id of the application that this container belongs to."""
        return str(self._application.id)

    def request_container(self, service: str, environment: Mapping[str, str]) -> str:
        """Asks for one more container of a service; its handle."""
        with _translated("ask for a container"):
            return str(self._application.add_container(service, env=dict(environment)).id)

    def containers(self, service: str) -> Sequence[ContainerStatus]:
        """All containers of a service requested in this attempt, ended ones too."""
        return self._containers_of(service)

    def _containers_of(self, *services: str) -> Sequence[ContainerStatus]:
        with _translated("list the containers of this application"):
            found = self._application.get_containers(services=services, states=_ALL_CONTAINER_STATES)
        return [_container(container) for container in found]

    def release_container(self, handle: str) -> None:
        """Gives one back, granted or not; no effect when it has ended."""
        try:
            with _translated(f"release the container {handle}"):
                self._application.kill_container(handle)
        except YarnError:
            # Skein refuses for a container that has ended; whether it has is read from its state, not from words.
            known = self._containers_of(TASK_EXECUTOR_SERVICE, SPARK_DRIVER_SERVICE)
            if any(one.handle == handle and not one.has_ended for one in known):
                raise

    def publish(self, key: str, value: str) -> None:
        """Writes into the application's key-value store."""
        with _translated(f"publish {key}"):
            self._application.kv[key] = value.encode()

    def add_page(self, route: str, address: str, link_name: str) -> None:
        """Make `address` reachable below the tracking URL, in place of an earlier page at `route`."""
        with _translated(f"add the page {route} to Skein's web pages"):
            if route in self._added_pages:
                self._application.ui.remove_page(route)
            self._application.ui.add_page(route, address, link_name)
        self._added_pages.add(route)

    def set_progress(self, progress: float) -> None:
        """Report the progress, 0.0 to 1.0; values beyond are cut off."""
        with _translated("report progress"):
            self._application.set_progress(min(1.0, max(0.0, progress)))

    def finish(self, status: FinalStatus, diagnostics: str) -> None:
        """Ends the application with this status and text; the process has little time left afterwards."""
        try:
            with _translated("end the application"):
                self._application.shutdown(status=status.value, diagnostics=diagnostics)
        except YarnError as error:
            if not isinstance(error.__cause__, ConnectionError):
                raise
            # The ApplicationMaster may have gone before its answer.
            raise EndUnknownError(
                f"Skein's ApplicationMaster was told to end the application, and gave no answer: {error}"
            ) from error


@contextmanager
def _translated(action: str, application_id: str = "") -> Iterator[None]:
    """A context that turns errors of Skein into YarnError: the action, YARN's words, the setting that decides."""
    try:
        yield
    except YarnError:
        raise
    except KeyError as error:
        if not application_id:
            raise explain(action, _text(error)) from error
        raise _unknown(application_id) from error
    except (skein.SkeinError, ValueError, TypeError, OSError) as error:
        if application_id and _UNKNOWN_APPLICATION.match(_text(error)):
            raise _unknown(application_id) from error
        raise explain(action, _text(error)) from error


def _unknown(application_id: str) -> ApplicationNotFoundError:
    return ApplicationNotFoundError(
        f"YARN knows no application {application_id}, or has forgotten it:"
        " see `yarn application -list -appStates ALL`."
    )


def _text(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__


def _security(certificate: bytes, key: bytes) -> Any:
    return skein.Security(cert_bytes=certificate, key_bytes=key)


def _specification(submission: ApplicationSubmission, security: Any) -> Any:
    task_executor = _service(
        submission.task_executor,
        submission.task_executor_script,
        submission.task_executor_resources,
        submission.task_executor_environment,
    )
    spark_driver = _service(
        submission.spark_driver,
        submission.spark_driver_script,
        submission.spark_driver_resources,
        submission.spark_driver_environment,
    )
    master = skein.Master(
        resources=_resources(submission.master),
        script=submission.master_script,
        files=_files(submission.master_resources),
        env=dict(submission.master_environment),
        security=security,
        log_config=submission.master_log_settings or None,
    )
    return skein.ApplicationSpec(
        name=submission.name,
        queue=submission.queue,
        node_label=submission.node_label,
        tags=set(submission.tags),
        file_systems=list(submission.file_systems),
        acls=_access(submission),
        max_attempts=submission.max_attempts,
        master=master,
        services={TASK_EXECUTOR_SERVICE: task_executor, SPARK_DRIVER_SERVICE: spark_driver},
    )


def _service(
    shape: ContainerShape, script: str, resources: Sequence[Resource], environment: Mapping[str, str]
) -> Any:
    return skein.Service(
        resources=_resources(shape),
        script=script,
        # None at the beginning, none started again by Skein, and none whose end is the application's: all of
        # that is the ResourceManager's.
        instances=0,
        max_restarts=0,
        allow_failures=True,
        files=_files(resources),
        env=dict(environment),
        node_label=shape.node_label,
    )


def _resources(shape: ContainerShape) -> Any:
    return skein.Resources(memory=shape.memory_mb, vcores=shape.vcores)


def _files(resources: Sequence[Resource]) -> dict[str, Any]:
    return {
        resource.target: skein.File(
            source=resource.source,
            type="ARCHIVE" if resource.is_archive else "FILE",
            visibility="PRIVATE" if resource.shared else "APPLICATION",
        )
        for resource in resources
    }


def _access(submission: ApplicationSubmission) -> Any:
    users = (*submission.view_users, *submission.modify_users)
    if not users and not submission.view_groups and not submission.modify_groups:
        return skein.ACLs()
    return skein.ACLs(
        enable=True,
        view_users=list(submission.view_users),
        view_groups=list(submission.view_groups),
        modify_users=list(submission.modify_users),
        modify_groups=list(submission.modify_groups),
        # Skein's own pages, and ours behind them, know users alone.
        ui_users=list(submission.view_users),
    )


def _report(report: Any) -> ApplicationReport:
    return ApplicationReport(
        application_id=str(report.id),
        name=str(report.name),
        user=str(report.user),
        queue=str(report.queue),
        state=YarnState(str(report.state)),
        final_status=FinalStatus(str(report.final_status)),
        diagnostics=str(report.diagnostics or ""),
        tracking_url=str(report.tracking_url or ""),
        tags=frozenset(report.tags),
        start_ms=_epoch_ms(report.start_time),
    )


def _epoch_ms(moment: Any) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1000)


def _container(container: Any) -> ContainerStatus:
    return ContainerStatus(
        handle=str(container.id),
        state=str(container.state),
        container_id=str(container.yarn_container_id or ""),
        node=str(container.yarn_node_http_address or ""),
        exit_message=str(container.exit_message or ""),
    )
