"""Settings of the control plane's components, read from a configuration in one place.

Owner: any thread; pure. Raises InvalidOptionValue, naming the key, for a value that cannot be.
"""

from __future__ import annotations

from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.cluster_entrypoint import ControlPlaneSettings
from yarrow.am.dispatcher.dispatcher import DispatcherSettings
from yarrow.am.jobmaster.restart_strategies import restart_backoff_factory
from yarrow.am.jobmaster.settings import FailoverScope, JobMasterSettings, SchedulerMode
from yarrow.am.resourcemanager.resource_manager import ResourceManagerSettings
from yarrow.am.resourcemanager.slot_manager import SlotManagerSettings
from yarrow.am.resourcemanager.starts import StartSettings
from yarrow.runtime.config.options import (
    cluster,
    jobmanager,
    resourcemanager,
    rest,
    rpc,
    taskmanager,
    web,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings
from yarrow.runtime.rpc.registration import RegistrationSettings


def control_plane_settings(
    config: Settings,
    blob_directory: str,
    slots_per_task_executor: int,
    can_request: bool,
    keep_results: bool = False,
) -> ControlPlaneSettings:
    """The settings of a cluster; `can_request` False = TaskExecutors come by themselves (standalone).

    `keep_results`: how jobs ended is kept as long as the cluster id, for masters that submit their jobs themselves.
    """
    heartbeat = heartbeat_settings(config)
    return ControlPlaneSettings(
        blob_directory=blob_directory,
        dispatcher=DispatcherSettings(
            finished_jobs=config.get(jobmanager.JOB_STORE_MAX_CAPACITY),
            finished_expiration=config.get(jobmanager.JOB_STORE_EXPIRATION_TIME).seconds,
            keep_results=keep_results,
            job_master=lambda graph: job_master_settings(config, graph),
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
                redundant_task_executors=config.get(resourcemanager.REDUNDANT_TASK_MANAGERS)
                if can_request
                else 0,
            ),
            heartbeat=heartbeat,
        ),
        leader_timeout=config.get(rest.AWAIT_LEADER_TIMEOUT).seconds,
    )


def job_master_settings(config: Settings, graph: JobGraph) -> JobMasterSettings:
    """The settings of one job: the cluster's, with the job's own configuration before them."""
    merged = config.overlay(graph.configuration, f"job {graph.name!r}")
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
        registration=RegistrationSettings(
            config.get(cluster.REGISTRATION_INITIAL_TIMEOUT).seconds,
            config.get(cluster.REGISTRATION_MAX_TIMEOUT).seconds,
        ),
        exception_history_size=merged.get(web.EXCEPTION_HISTORY_SIZE),
        attempts_history_size=merged.get(jobmanager.ATTEMPTS_HISTORY_SIZE),
        restart_backoff=restart_backoff_factory(merged),
        failover_scope=FailoverScope(merged.get(jobmanager.FAILOVER_STRATEGY).value),
        checkpoints=CheckpointSettings.of(merged),
        inline_graph_bytes=config.get(rpc.MESSAGE_MAX_SIZE).bytes // 4,
    )


def heartbeat_settings(config: Settings) -> HeartbeatSettings:
    """heartbeat.interval, heartbeat.timeout and heartbeat.rpc-failure-threshold."""
    return HeartbeatSettings(
        config.get(rpc.HEARTBEAT_INTERVAL).seconds,
        config.get(rpc.HEARTBEAT_TIMEOUT).seconds,
        config.get(rpc.HEARTBEAT_RPC_FAILURE_THRESHOLD),
    )
