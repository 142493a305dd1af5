"""The settings of a TaskExecutor, made once from its bootstrap.

Owner: none (frozen values). Must not be logged whole: it holds the data secret and the private key.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from yarrow.container.supervisor.slot_workers import SlotWorkerSettings
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.config.data_ports import data_port_problem
from yarrow.runtime.config.memory import reserved_memory, task_executor_budget
from yarrow.runtime.config.options import rpc, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import TaskExecutorBootstrap
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings
from yarrow.runtime.rpc.limits import DEFAULT_MAX_MESSAGE_BYTES
from yarrow.runtime.rpc.messages import HardwareDescription, ResourceProfile
from yarrow.runtime.rpc.registration import RegistrationSettings


class TaskExecutorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint's own settings; times are seconds, sizes bytes."""

    resource_id: ResourceID
    host: str
    slots: int
    #: Of each slot.
    profile: ResourceProfile
    process_memory: int
    supervisor_memory: int
    hardware: HardwareDescription
    #: Parent of the files of jobs and the folders of workers.
    working_directory: Path
    workers: SlotWorkerSettings
    memory_warning_threshold: float = 0.9
    registration_timeout: float = 300.0
    slot_timeout: float = 10.0
    cancellation_timeout: float = 180.0
    #: From a slot's release, or the TaskExecutor's own end, to SIGKILL.
    release_grace: float = 5.0
    heartbeat: HeartbeatSettings = msgspec.field(default_factory=HeartbeatSettings)
    registration: RegistrationSettings = msgspec.field(default_factory=RegistrationSettings)
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES


def settings_of(bootstrap: TaskExecutorBootstrap) -> TaskExecutorSettings:
    """Reads the settings from a bootstrap. Raises ConfigError for a fault."""
    config = Settings(bootstrap.configuration, "the bootstrap of the TaskExecutor")
    budget = task_executor_budget(config, bootstrap.slots or None)
    transport = config.get(taskmanager.DATA_TRANSPORT)
    uses_tcp = bootstrap.listen_tcp or transport is not taskmanager.DataTransport.AUTO
    if uses_tcp and (problem := data_port_problem(config, budget.slots)) is not None:
        raise problem
    cores = config.get(taskmanager.CPU_CORES) or float(available_cores())
    working_directory = Path(bootstrap.working_directory)
    return TaskExecutorSettings(
        resource_id=bootstrap.resource_id,
        host=bootstrap.host,
        slots=budget.slots,
        profile=ResourceProfile(cpu_cores=cores / budget.slots, memory_bytes=budget.slot.bytes),
        process_memory=budget.process.bytes,
        supervisor_memory=budget.supervisor.bytes,
        hardware=hardware(cores, reserved_memory(config, budget.slot).bytes * budget.slots),
        working_directory=working_directory,
        workers=SlotWorkerSettings(
            resource_id=bootstrap.resource_id,
            host=bootstrap.host,
            host_key=host_key(bootstrap.resource_id, config.get(taskmanager.DATA_TRANSPORT)),
            working_directory=working_directory,
            cores_per_slot=cores / budget.slots,
            configuration=bootstrap.configuration,
            data_secret=bootstrap.data_secret,
            identity=bootstrap.identity,
            listen_tcp=bootstrap.listen_tcp,
            forward_logs=bootstrap.forward_output,
        ),
        memory_warning_threshold=config.get(taskmanager.MEMORY_WARNING_THRESHOLD),
        registration_timeout=config.get(taskmanager.REGISTRATION_TIMEOUT).seconds,
        slot_timeout=config.get(taskmanager.SLOT_TIMEOUT).seconds,
        cancellation_timeout=config.get(taskmanager.CANCELLATION_TIMEOUT).seconds,
        heartbeat=HeartbeatSettings(
            config.get(rpc.HEARTBEAT_INTERVAL).seconds, config.get(rpc.HEARTBEAT_TIMEOUT).seconds
        ),
        registration=RegistrationSettings.of(config),
        max_message_bytes=bootstrap.max_message_bytes,
    )


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def hardware(cores: float, managed_memory: int = 0) -> HardwareDescription:
    """The machine in REST's form; the state backends of all slots share `managed_memory` (bytes)."""
    page = os.sysconf("SC_PAGE_SIZE")
    return HardwareDescription(
        cpu_cores=max(1, round(cores)),
        physical_memory=page * os.sysconf("SC_PHYS_PAGES"),
        free_memory=page * os.sysconf("SC_AVPHYS_PAGES"),
        managed_memory=managed_memory,
    )


def host_key(resource_id: ResourceID, transport: taskmanager.DataTransport) -> str:
    """Equal for processes that can use Unix sockets and a loopback together: kernel and namespace.

    With the transport `container` it includes the TaskExecutor's own id: no other one shares its files.
    """
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    key = f"{boot_id}/{os.readlink('/proc/self/ns/net')}"
    return f"{key}/{resource_id}" if transport is taskmanager.DataTransport.CONTAINER else key
