"""Settings of an ApplicationMaster, made once from the files of its container.

Owner: the main thread at the start. Raises ConfigError with the key. Must not be logged whole: it holds
secrets.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from yarrow.am.control_plane import ControlPlaneSettings
from yarrow.am.control_plane_settings import control_plane_settings
from yarrow.am.rest.services import EntranceKind, RestSettings, for_other_hosts
from yarrow.am.yarn.service_containers import YarnDriverSettings
from yarrow.common.values.value_types import PortRange
from yarrow.runtime.config.memory import check_job_manager_memory, task_executor_budget
from yarrow.runtime.config.options import jobmanager, resourcemanager, rest, rpc, security, taskmanager, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.grpc_transport import GrpcSettings
from yarrow.runtime.yarn.application import ApplicationDescription, DeploymentMode, MasterSecrets
from yarrow.runtime.yarn.container_files import ContainerFolder, configuration_of
from yarrow.runtime.yarn.gateways import ContainerShape
from yarrow.runtime.yarn.shared_places import check_savepoint_target, check_shared_places
from yarrow.runtime.yarn.spark_driver_shape import spark_driver_shape

#: The page's route below the tracking URL, where Skein's own page shows those of others.
PAGE_ROUTE = "yarrow"
#: Most seconds between two looks at containers.
_LONGEST_POLL = 1.0


@dataclass(frozen=True, slots=True)
class ApplicationMasterSettings:
    """The settings of all parts of a master."""

    config: Settings
    control_plane: ControlPlaneSettings
    driver: YarnDriverSettings
    #: The same for containers of SparkDrivers.
    spark_driver: YarnDriverSettings
    #: One for each port to try, in order.
    rpc: tuple[GrpcSettings, ...]
    rest_host: str
    rest_ports: tuple[int, ...]
    #: For clients with the token.
    rest: RestSettings
    #: For YARN's proxy.
    proxy: RestSettings

    @staticmethod
    def of(
        description: ApplicationDescription,
        secrets: MasterSecrets,
        folder: ContainerFolder,
        temporary_directory: Path,
    ) -> ApplicationMasterSettings:
        """Raises ConfigError."""
        config = configuration_of(description, secrets.sensitive_configuration, folder.application_id)
        check_job_manager_memory(config)
        slots = task_executor_budget(config).slots
        config = _with_kept_slots(config, description.initial_task_executors * slots)
        rest_settings = replace(
            RestSettings.of(config),
            temporary_directory=temporary_directory,
            check_savepoint_target=check_savepoint_target,
        )
        driver = YarnDriverSettings(
            attempt=folder.attempt,
            shape=container_shape(config),
            poll_interval=min(
                _LONGEST_POLL,
                config.get(yarn.HEARTBEAT_INTERVAL),
                max(0.05, config.get(yarn.CONTAINER_REQUEST_INTERVAL) / 1000),
            ),
        )
        return ApplicationMasterSettings(
            config=config,
            control_plane=control_plane_settings(
                config,
                blob_directory=str(temporary_directory / "blobs"),
                slots_per_task_executor=slots,
                can_request=True,
                # A later attempt submits the same jobs: ended ones must not run again.
                keep_results=description.mode is not DeploymentMode.SESSION,
                check_places=check_shared_places,
            ),
            driver=driver,
            spark_driver=replace(driver, shape=spark_driver_shape(config)),
            rpc=tuple(
                _rpc_settings(config, secrets, folder, port)
                for port in ports_of(config.get(yarn.APPLICATION_MASTER_PORT))
            ),
            rest_host=config.get(rest.BIND_ADDRESS) or folder.host,
            rest_ports=_rest_ports(config),
            rest=replace(
                for_other_hosts(rest_settings, config, secrets.rest_token_hash), tls=_tls(secrets, config)
            ),
            proxy=replace(
                rest_settings,
                entrance=EntranceKind.PROXY,
                cancel_by_get=config.get(yarn.PROXY_ALLOW_CANCEL),
                external_base=f"/proxy/{folder.application_id}/pages/{PAGE_ROUTE}",
            ),
        )


def _tls(secrets: MasterSecrets, config: Settings) -> ssl.SSLContext | None:
    if secrets.rest_identity.is_empty:
        return None
    from yarrow.runtime.security.keystores import rest_server_context

    return rest_server_context(secrets.rest_identity, config)


def container_shape(config: Settings) -> ContainerShape:
    """The single shape of all TaskExecutor containers."""
    vcores = config.get(yarn.CONTAINER_VCORES)
    return ContainerShape(
        memory_mb=-(-config.get(taskmanager.PROCESS_SIZE).bytes // (1 << 20)),
        vcores=vcores if vcores > 0 else config.get(taskmanager.NUMBER_OF_TASK_SLOTS),
        node_label=config.get(yarn.TASK_MANAGER_NODE_LABEL) or "",
    )


def ports_of(ports: PortRange) -> Iterator[int]:
    """The ports to try, in order; 0 lets the system choose."""
    for first, last in ports.intervals:
        yield from range(first, last + 1)


def _with_kept_slots(config: Settings, slots: int) -> Settings:
    kept = max(slots, config.get(resourcemanager.NUMBER_OF_SLOTS_MIN))
    return config.overlay({resourcemanager.NUMBER_OF_SLOTS_MIN.key: kept})


def _rest_ports(config: Settings) -> tuple[int, ...]:
    """`rest.bind-port` if it is set by that name: on a client, `rest.port` names the port of another cluster."""
    if config.text(rest.BIND_PORT.key) is None:
        return (0,)
    return tuple(ports_of(config.get(rest.BIND_PORT)))


def _rpc_settings(
    config: Settings, secrets: MasterSecrets, folder: ContainerFolder, port: int
) -> GrpcSettings:
    return GrpcSettings(
        application_id=secrets.application_secret_id,
        bind_host=config.get(jobmanager.BIND_HOST) or folder.host,
        host=folder.host,
        port=port,
        identity=secrets.identity if config.get(security.INTERNAL_ENABLED) else PemIdentity(),
        max_message_bytes=config.get(rpc.MESSAGE_MAX_SIZE).bytes,
        ask_timeout=config.get(rpc.ASK_TIMEOUT).seconds,
        connect_timeout=config.get(rpc.CONNECT_TIMEOUT).seconds,
    )
