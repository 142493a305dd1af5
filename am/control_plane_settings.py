"""Settings of the control plane's components, read from a configuration in one place.

Owner: any thread; pure. Raises InvalidOptionValue, with the key, for an impossible value.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.control_plane import ControlPlaneSettings
from yarrow.am.dispatcher.job_archive import EndedJob, JobArchive
from yarrow.am.dispatcher.settings import DispatcherSettings
from yarrow.am.jobmaster.scheduling.restart_strategies import restart_backoff_factory
from yarrow.am.jobmaster.scheduling.settings import FailoverScope, JobMasterSettings, SchedulerMode
from yarrow.am.resourcemanager.requested_task_executors import StartSettings
from yarrow.am.resourcemanager.settings import ResourceManagerSettings, SlotManagerSettings
from yarrow.common.execution_modes import ExternalizedCheckpointRetention
from yarrow.runtime.common.errors import JobSubmissionError, YarrowError
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options import (
    checkpointing,
    high_availability,
    jobmanager,
    python,
    resourcemanager,
    rest,
    rpc,
    taskmanager,
    web,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.storage_names import is_custom
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.ha.settings import CHECKPOINTS_FOLDER, is_highly_available, storage_directory
from yarrow.runtime.interpreters.job_interpreter import interpreter_of
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings
from yarrow.runtime.rpc.registration import RegistrationSettings


def control_plane_settings(
    config: Settings,
    blob_directory: str,
    slots_per_task_executor: int,
    can_request: bool,
    keep_results: bool = False,
    check_places: Callable[[Settings], None] = lambda config: None,
) -> ControlPlaneSettings:
    """The settings of a cluster. `can_request` False = TaskExecutors come by themselves (standalone).

    `keep_results`: job results are kept as long as the cluster id, for masters that submit their jobs
    themselves. `check_places` raises YarrowError for places of a job that not all processes of this cluster
    reach.
    """
    heartbeat = heartbeat_settings(config)
    return ControlPlaneSettings(
        blob_directory=blob_directory,
        dispatcher=DispatcherSettings(
            finished_jobs=config.get(jobmanager.JOB_STORE_MAX_CAPACITY),
            finished_expiration=config.get(jobmanager.JOB_STORE_EXPIRATION_TIME).seconds,
            keep_results=keep_results,
            archive=_job_archive(config),
            job_master=lambda graph: job_master_settings(config, graph),
            check_job=lambda graph: _check_job(config, graph, check_places),
        ),
        resource_manager=ResourceManagerSettings(
            slots=SlotManagerSettings(
                task_executor_timeout=config.get(resourcemanager.TASK_MANAGER_TIMEOUT).seconds,
                evenly_spread_out=config.get(resourcemanager.EVENLY_SPREAD_OUT_SLOTS),
                slots_per_task_executor=slots_per_task_executor,
                max_slots=config.get(resourcemanager.NUMBER_OF_SLOTS_MAX) if can_request else None,
                min_slots=config.get(resourcemanager.NUMBER_OF_SLOTS_MIN) if can_request else 0,
                starts=StartSettings(
                    max_failure_rate=config.get(resourcemanager.START_WORKER_MAX_FAILURE_RATE),
                    retry_interval=config.get(resourcemanager.START_WORKER_RETRY_INTERVAL).seconds,
                    registration_timeout=config.get(
                        resourcemanager.TASK_MANAGER_REGISTRATION_TIMEOUT
                    ).seconds,
                ),
                can_request=can_request,
                requirement_check_delay=config.get(resourcemanager.REQUIREMENT_CHECK_DELAY).seconds,
                redundant_task_executors=config.get(resourcemanager.REDUNDANT_TASK_MANAGERS)
                if can_request
                else 0,
            ),
            heartbeat=heartbeat,
        ),
        leader_timeout=config.get(rest.AWAIT_LEADER_TIMEOUT).seconds,
    )


def _job_archive(config: Settings) -> JobArchive | None:
    directory = config.get(jobmanager.ARCHIVE_DIR)
    if directory is None:
        return None
    exceptions = config.get(web.EXCEPTION_HISTORY_SIZE)

    def answers(job: EndedJob) -> dict[str, str]:
        # Imported late: the web framework is loaded only for an archive.
        from yarrow.am.rest import archived_job

        return archived_job.answers(job, exceptions)

    return JobArchive(directory, answers)


def _check_job(config: Settings, graph: JobGraph, check_places: Callable[[Settings], None]) -> None:
    """Raises JobSubmissionError before anything of the job is stored."""
    try:
        job_master_settings(config, graph)
        check_places(_merged(config, graph))
        _check_interpreter(graph)
    except JobSubmissionError:
        raise
    except YarrowError as error:
        raise JobSubmissionError(f"job {graph.name!r} cannot run on this cluster: {error}") from error


def _check_interpreter(graph: JobGraph) -> None:
    """Raises JobSubmissionError for a bounded job that brings an interpreter, which its SparkDriver would not use."""
    own = interpreter_of(graph) if graph.job_type is JobType.BATCH else None
    if own is not None:
        raise JobSubmissionError(
            f"job {graph.name!r} brings an interpreter, {own.executable} in the job's archive {own.archive!r}, which"
            f" BATCH mode does not use. Install its packages in the interpreter of the cluster and leave"
            f" {python.EXECUTABLE.key} out, or run the job in STREAMING mode"
        )


def _merged(config: Settings, graph: JobGraph) -> Settings:
    return config.overlay(graph.configuration, f"job {graph.name!r}")


def job_master_settings(config: Settings, graph: JobGraph) -> JobMasterSettings:
    """The settings of one job: its own configuration over the cluster's."""
    merged = _merged(config, graph)
    mode = merged.get(jobmanager.SCHEDULING_MODE)
    return JobMasterSettings(
        scheduler_mode=(
            SchedulerMode.EAGER
            if mode is jobmanager.SchedulingMode.EAGER
            else SchedulerMode.LAZY_FROM_SOURCES
        ),
        slot_request_timeout=merged.get(resourcemanager.SLOT_REQUEST_TIMEOUT).seconds,
        slot_idle_timeout=merged.get(resourcemanager.SLOT_IDLE_TIMEOUT).seconds,
        cancellation_timeout=merged.get(taskmanager.CANCELLATION_TIMEOUT).seconds,
        heartbeat=heartbeat_settings(config),
        registration=RegistrationSettings.of(config),
        exception_history_size=merged.get(web.EXCEPTION_HISTORY_SIZE),
        attempts_history_size=merged.get(jobmanager.ATTEMPTS_HISTORY_SIZE),
        restart_backoff=restart_backoff_factory(merged),
        failover_scope=FailoverScope(merged.get(jobmanager.FAILOVER_STRATEGY).value),
        checkpoints=CheckpointSettings.of(_with_checkpoint_folder(merged, config)),
        inline_graph_bytes=config.get(rpc.MESSAGE_MAX_SIZE).bytes // 4,
    )


def _with_checkpoint_folder(merged: Settings, config: Settings) -> Settings:
    """With high availability, checkpoints go to its storage if no folder is named for them.

    Checkpoints in a master's memory end with the master, and the job would begin anew.

    Raises ConfigError if checkpoints must outlive the cluster id, since that storage is removed with the id.
    """
    storage = merged.get(checkpointing.STORAGE)
    has_own = merged.get(checkpointing.DIRECTORY) or (storage is not None and is_custom(storage))
    # The cluster decides on high availability, not the job.
    if has_own or not is_highly_available(config):
        return merged
    directory, retention = checkpointing.DIRECTORY.key, checkpointing.EXTERNALIZED_RETENTION
    if merged.get(retention) is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS:
        raise ConfigError(
            f"{retention.key} keeps checkpoints of ended jobs, but {directory} is not set. The checkpoints "
            f"would lie below {high_availability.STORAGE_DIR.key}, which is emptied with the cluster id. "
            f"Set {directory}.",
            (retention.key, directory),
        )
    return merged.overlay({directory: join(storage_directory(config), CHECKPOINTS_FOLDER)})


def heartbeat_settings(config: Settings) -> HeartbeatSettings:
    """heartbeat.interval, heartbeat.timeout and heartbeat.rpc-failure-threshold."""
    return HeartbeatSettings(
        config.get(rpc.HEARTBEAT_INTERVAL).seconds,
        config.get(rpc.HEARTBEAT_TIMEOUT).seconds,
        config.get(rpc.HEARTBEAT_RPC_FAILURE_THRESHOLD),
    )
