"""Executors of `yarn-session` and `yarn-per-job`: a program's main() runs in the client, its jobs on YARN.

Owner: the thread that calls execute. If the client is interrupted, nothing is left of an application for an
attached job.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from yarrow.client.errors import CommandError
from yarrow.client.interrupts import show_no_trace_of_ctrl_c
from yarrow.client.rest.job_heartbeats import JobHeartbeatSettings
from yarrow.client.rest.job_submission import is_attached, run_on, settings_of, with_client
from yarrow.client.rest.remote_job_client import RemoteJobClient, in_thread
from yarrow.client.rest.rest_client import RestClient, RestError, RestUnavailableError
from yarrow.client.targets import YARN_APPLICATION, YARN_PER_JOB, YARN_SESSION
from yarrow.client.yarn.application_files import ApplicationFiles
from yarrow.client.yarn.applications import NO_PAIR, application_of, end_text, rest_of, say
from yarrow.common.completable_future import CompletableFuture
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import InvalidProgramError, JobAlreadyEndedError
from yarrow.runtime.config.options import yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import DetachedJobClient, LocalFile
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.shipped_files import archive_folders
from yarrow.runtime.interpreters.interpreter import of_task_executors

#: Seconds that an application has to end after its job was cancelled, before YARN kills it.
_GRACE = 20.0
#: Seconds in which the master of a job's own application must know the job.
_UNKNOWN = 60.0


class YarnSessionExecutor:
    """Submits to the session of yarn.application.id, else of the properties file."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Submits a job. Raises an error with the session if that is gone; nothing runs elsewhere."""
        config = settings_of(configuration)
        return run_on(rest_of(config, application_of(config)), config, job_graph, files)


class YarnJobExecutor:
    """Deploys an application for each job, which ends with it."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Returns when the application's REST answers; after an error or Ctrl-C, nothing is left on YARN."""
        from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor

        config = settings_of(configuration)
        if config.is_set(yarn.APPLICATION_ID):
            raise CommandError(
                f"execution.target is {YARN_PER_JOB}, which starts an application of its own, but"
                f" {yarn.APPLICATION_ID.key} names one that runs: leave it out, or take -t {YARN_SESSION}."
            )
        show_no_trace_of_ctrl_c()
        attached = is_attached(config)
        heartbeats = JobHeartbeatSettings.of(config, attached)
        cluster_config = of_task_executors(config, archive_folders(files))
        with YarnClusterDescriptor(cluster_config, say) as descriptor:
            cluster = descriptor.deploy_job(with_client(job_graph, heartbeats), files, attached=attached)
            try:
                print(f"Yarn application {cluster.application_id} ({cluster.name}) runs.")
                print(f"JobManager Web Interface: {cluster.rest_address}", flush=True)
                if not attached:
                    print_how_to_end(cluster.application_id, job_graph.job_id)
                    return DetachedJobClient(job_graph.job_id)
                own = config.overlay({yarn.APPLICATION_ID.key: cluster.application_id})
                rest = rest_of(own, application_of(own))
                wait_until_known(rest, job_graph.job_id)
                return ApplicationJobClient(own, cluster.application_id, rest, job_graph, heartbeats)
            except BaseException:
                # Nobody has a handle on it yet.
                descriptor.kill(cluster.application_id)
                raise


class YarnApplicationExecutor:
    """Refuses: in application mode `main()` runs on YARN, which needs the program and not its jobs."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        raise InvalidProgramError(
            f"execution.target is {YARN_APPLICATION}, where main() runs on YARN: start the program with"
            f" `yarrow run -t {YARN_APPLICATION} job.py`."
        )


class ApplicationJobClient(RemoteJobClient):
    """The job of an application that ends with it: cancelling it leaves no application behind."""

    def __init__(
        self,
        config: Settings,
        application_id: str,
        rest: RestClient,
        graph: JobGraph,
        heartbeats: JobHeartbeatSettings | None,
    ) -> None:
        super().__init__(rest, graph, heartbeats)
        self._config = config
        self._application_id = application_id

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The job's result; at its end the application's secrets are useless, and are removed."""

        def forget(result: JobExecutionResult | None, error: BaseException | None) -> None:
            ApplicationFiles.of(self._config).forget(self._application_id)

        ended = super().get_job_execution_result()
        ended.when_complete(forget)
        return ended

    def cancel(self) -> CompletableFuture[None]:
        """Cancels the job; kills the application if that does not end it."""
        asked = super().cancel()

        def make_sure() -> None:
            error = asked.exception()
            # Without REST nothing tells the application to end.
            self._wait_for_end(0.0 if isinstance(error, RestUnavailableError) else _GRACE)
            if isinstance(error, JobAlreadyEndedError):
                raise error

        return in_thread(make_sure)

    def _wait_for_end(self, seconds: float) -> None:
        from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor

        clock, pause = SystemClock(), threading.Event()
        deadline = clock.monotonic() + seconds
        with YarnClusterDescriptor(self._config, say) as descriptor:
            client = descriptor.client(NO_PAIR)
            while not (report := client.report(self._application_id)).state.has_ended:
                if clock.monotonic() > deadline:
                    say(f"{self._application_id} has not ended: YARN kills it.")
                    descriptor.kill(self._application_id)
                    return
                pause.wait(0.2)
            say(end_text(report))
            descriptor.files.forget(self._application_id)


def wait_until_known(rest: RestClient, job_id: str) -> None:
    """Waits until the master has accepted its job: REST answers earlier, and HDFS and ZooKeeper may delay it."""
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + _UNKNOWN
    while True:
        try:
            rest.get(f"/jobs/{job_id}/execution-result")
            return
        except RestError as error:
            if error.status != HTTPStatus.NOT_FOUND or clock.monotonic() > deadline:
                raise
        pause.wait(0.1)


def print_how_to_end(application_id: str, job_id: Any = None) -> None:
    """Prints how to end an application that is left running."""
    kill = f"yarn application -kill {application_id}"
    if job_id is None:
        # Its jobs are main()'s, which has not submitted any yet.
        print(
            f"The application runs on without this command. `yarrow list -yid {application_id}` shows its"
            " jobs. To end it:"
        )
        print(f"  {kill}", flush=True)
        return
    print("The application runs on without this command. To end it:")
    print(f"  yarrow cancel -yid {application_id} {job_id}")
    print(f"or, where that fails: {kill}", flush=True)
