"""MetricSamples: all metrics of a cluster, collected when Prometheus scrapes.

Owner: the event loop of the REST server. One endpoint in the control plane serves all processes: workers and
supervisors report their metrics in heartbeats.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from yarrow.am.rest.services import RestServices
from yarrow.runtime.common.errors import JobNotFoundError
from yarrow.runtime.metrics.job_metrics import job_manager_metrics
from yarrow.runtime.metrics.process_metrics import process_metrics
from yarrow.runtime.metrics.samples import Sample, of_job, of_task_executors, of_values


class MetricSamples:
    """The metrics of one cluster."""

    def __init__(self, services: RestServices) -> None:
        self._services = services
        self._host = socket.gethostname()

    async def collect(self) -> Iterable[Sample]:
        """Metrics of the control plane, the TaskExecutors, and every job that has not ended."""
        dispatcher = self._services.dispatcher
        overview = await dispatcher.request_overview()
        own = job_manager_metrics(overview) | process_metrics()
        samples = list(of_values("jobmanager", own, {"host": self._host}))
        samples += of_task_executors(await self._services.resource_manager.request_task_executors())
        for job in await dispatcher.list_jobs():
            if job.status.is_globally_terminal_state():
                continue
            try:
                details = await dispatcher.request_job_details(job.job_id)
            except JobNotFoundError:
                continue
            samples += of_job(details, self._host, self._services.clock.epoch_ms())
        return samples
