"""A deployment in progress: checks before the upload, and the wait until REST answers.

Owner: the client's thread that deploys; blocking. It reports through `say` why an application does not run
yet, once for each new reason. It kills nothing: the submitter does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from yarrow.client.yarn.waiting import waiting_reason
from yarrow.client.yarn.yarn_client import YarnClient
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.config.options import yarn
from yarrow.runtime.yarn.gateways import ApplicationSubmission, ContainerShape, YarnError, YarnState
from yarrow.runtime.yarn.layout import KV_REST_ADDRESS
from yarrow.runtime.yarn.resource_manager_web import LeafQueue, YarnApplicationStatus

_POLL_SECONDS: Final = 0.1
#: Seconds in the queue after which the reason is looked up.
_SAY_WAITING_AFTER: Final = 3.0
_LOOK_FOR_REASONS_SECONDS: Final = 2.0
#: Seconds for one look at the key-value store, between two looks at the application's state.
_VALUE_SECONDS: Final = 1.0
#: Seconds in which YARN must gather the logs of a failed application.
_LOGS_SECONDS: Final = 15.0


def check_resources(submission: ApplicationSubmission, queues: Sequence[LeafQueue]) -> None:
    """Raises YarnError for a queue that accepts no applications, and for containers above its maximum.

    `queues` empty = unknown: YARN itself decides. YARN would refuse a TaskExecutor's size only at the first
    request.
    """
    if not queues:
        return
    queue = next((one for one in queues if submission.queue in (one.name, one.path)), None)
    if queue is None:
        raise YarnError(
            f"YARN has no queue {submission.queue!r} that takes applications (yarn.application.queue, -qu);"
            f" there are: {', '.join(sorted(one.name for one in queues))}."
        )
    if queue.state not in ("RUNNING", ""):
        raise YarnError(
            f"Queue {submission.queue} is {queue.state} and takes no applications: name another by"
            " yarn.application.queue."
        )
    _check_size(
        submission.master,
        queue,
        "the ApplicationMaster",
        "jobmanager.memory.process.size",
        "yarn.appmaster.vcores",
    )
    _check_size(
        submission.task_executor,
        queue,
        "a TaskExecutor",
        "taskmanager.memory.process.size",
        "yarn.containers.vcores",
    )


def check_spark_driver(submission: ApplicationSubmission, queues: Sequence[LeafQueue]) -> None:
    """Raises YarnError for a SparkDriver's container above the queue's maximum; call it for bounded jobs alone."""
    queue = next((one for one in queues if submission.queue in (one.name, one.path)), None)
    if queue is not None:
        _check_size(
            submission.spark_driver,
            queue,
            "a SparkDriver",
            "yarn.spark-driver.memory",
            "yarn.spark-driver.vcores",
        )


def check_labels(submission: ApplicationSubmission, labels: Collection[str] | None) -> None:
    """Raises YarnError for a node label that YARN does not have; `labels` None = unknown.

    YARN would refuse a TaskExecutor's label only at the first request.
    """
    for wanted, key in (
        (submission.node_label, yarn.APPLICATION_NODE_LABEL.key),
        (submission.task_executor.node_label, yarn.TASK_MANAGER_NODE_LABEL.key),
    ):
        if wanted and labels is not None and wanted not in labels:
            raise YarnError(
                f"YARN has no node label {wanted!r} ({key}); there are: {', '.join(sorted(labels)) or 'none'}."
            )


def _check_size(
    shape: ContainerShape, queue: LeafQueue, whose: str, memory_key: str, vcores_key: str
) -> None:
    if 0 < queue.maximum_memory_mb < shape.memory_mb:
        raise YarnError(
            f"The container of {whose} is to have {shape.memory_mb} MiB ({memory_key}), but queue"
            f" {queue.name} gives at most {queue.maximum_memory_mb} MiB"
            " (yarn.scheduler.maximum-allocation-mb). Lower the first or raise the second."
        )
    if 0 < queue.maximum_vcores < shape.vcores:
        raise YarnError(
            f"The container of {whose} is to have {shape.vcores} cores ({vcores_key}; without it the number"
            f" of slots), but queue {queue.name} gives at most {queue.maximum_vcores}"
            " (yarn.scheduler.maximum-allocation-vcores)."
        )


class AwaitedApplication:
    """A submitted application, until its REST answers."""

    def __init__(
        self,
        client: YarnClient,
        application_id: str,
        submission: ApplicationSubmission,
        say: Callable[[str], None],
        clock: Clock,
        hint: str = "",
    ) -> None:
        """`hint`: added to the error for an application that ends before it is ready."""
        self._client = client
        self._id = application_id
        self._submission = submission
        self._say = say
        self._clock = clock
        self._hint = hint
        self._pause = threading.Event()
        self._said = ""
        self._next_look = 0.0

    def rest_address(self, timeout: float) -> str:
        """Waits for the address. Raises YarnError if the application ends first, or the time is over."""
        started = self._clock.monotonic()
        self._next_look = started + _SAY_WAITING_AFTER
        while True:
            status = self._client.status(self._id)
            if status.report.state.has_ended:
                raise YarnError(self._end(status))
            if status.report.state is YarnState.RUNNING:
                address = self._published(status)
                if address:
                    return address
            else:
                self._say_reason(status)
                self._pause.wait(_POLL_SECONDS)
            if self._clock.monotonic() - started > timeout:
                raise YarnError(self._too_late(status, timeout))

    def _published(self, status: YarnApplicationStatus) -> str:
        """The address, if the master publishes it within a moment."""
        try:
            if status.master_address:
                return self._client.value_at(status.master_address, self._id, KV_REST_ADDRESS, _VALUE_SECONDS)
            return self._client.value(self._id, KV_REST_ADDRESS, _VALUE_SECONDS)
        except YarnError:
            # Not yet, or the master is ending: the next report tells.
            self._pause.wait(_POLL_SECONDS)
            return ""

    def _say_reason(self, status: YarnApplicationStatus) -> None:
        now = self._clock.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_FOR_REASONS_SECONDS
        reason = self._reason(status)
        if reason and reason != self._said:
            self._said = reason
            self._say(reason)

    def _reason(self, status: YarnApplicationStatus) -> str:
        queues = self._client.leaf_queues()
        queue = next((one for one in queues if status.report.queue in (one.name, one.path)), None)
        return waiting_reason(status.report, self._submission.master, queue, self._client.metrics())

    def _too_late(self, status: YarnApplicationStatus, timeout: float) -> str:
        waited = f"{self._id} was not ready after {timeout:g} s (yarn.deployment-timeout) and is killed"
        if status.report.state is YarnState.RUNNING:
            return f"{waited}: its ApplicationMaster runs, but its REST server has not answered. {self._log_hint()}"
        reason = self._reason(status) or status.report.diagnostics
        return f"{waited}: it is {status.report.state.value}. {reason}".strip()

    def _end(self, status: YarnApplicationStatus) -> str:
        report = status.report
        ended = f"{self._id} ended as {report.state.value} before it was ready"
        said = report.diagnostics.strip() or "YARN gives no diagnostics"
        log = self._client.last_words(self._id, _LOGS_SECONDS) or self._log_hint()
        return "\n".join(part for part in (f"{ended}: {said}", log, self._hint) if part)

    def _log_hint(self) -> str:
        return f"Its log: `yarn logs -applicationId {self._id}`."
