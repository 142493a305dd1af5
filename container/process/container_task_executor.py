"""ContainerTaskExecutor: the TaskExecutor of a YARN container, from its bootstrap to its end.

Owner: its main thread, which runs the event loop. The application's description and the secrets of
TaskExecutors lie in the container's folder, the ResourceManager's address in the environment. Must not import
pyarrow, numpy, pandas or user code, nor put a secret into its arguments, environment or logs.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from yarrow.container.launch.process_start import StartedTemplate
from yarrow.container.process.container_life import ContainerLife
from yarrow.container.process.task_executor_process import (
    EarlyTemplate,
    configure_logging,
    output_files,
    run_task_executor,
)
from yarrow.runtime.common.ids import ResourceID, ResourceManagerID
from yarrow.runtime.config.options import rpc, security, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import PemIdentity, TaskExecutorBootstrap
from yarrow.runtime.yarn.application import ContainerSecrets
from yarrow.runtime.yarn.container_files import ContainerFolder, read_container, request_of
from yarrow.runtime.yarn.layout import (
    RESOURCE_ID,
    RESOURCE_MANAGER_ADDRESS,
    RESOURCE_MANAGER_ID,
    TASK_EXECUTOR_SECRETS_FILE,
)

#: Prefix of its log names, which are Flink's: YARN shows them.
LOG_NAME = "taskmanager"
_log = logging.getLogger("yarrow.container.process.yarn_task_executor")


@dataclass(frozen=True, slots=True)
class ResourceManagerRequest:
    """The environment variables that the requesting ResourceManager set for this container."""

    resource_id: ResourceID
    address: str
    leader_id: ResourceManagerID

    @staticmethod
    def of(environment: Mapping[str, str]) -> ResourceManagerRequest:
        """Reads them. Raises ContainerFolderError with the missing variable."""
        values = request_of(environment, (RESOURCE_ID, RESOURCE_MANAGER_ADDRESS, RESOURCE_MANAGER_ID))
        return ResourceManagerRequest(
            ResourceID(values[RESOURCE_ID]),
            values[RESOURCE_MANAGER_ADDRESS],
            ResourceManagerID(values[RESOURCE_MANAGER_ID]),
        )


def bootstrap_of(
    config: Settings,
    secrets: ContainerSecrets,
    request: ResourceManagerRequest,
    folder: ContainerFolder,
    working_directory: str,
) -> TaskExecutorBootstrap:
    """The bootstrap of the TaskExecutor. Raises ConfigError."""
    host = config.get(taskmanager.HOST) or folder.host
    return TaskExecutorBootstrap(
        application_id=secrets.application_secret_id,
        resource_id=request.resource_id,
        resource_manager_address=request.address,
        resource_manager_id=request.leader_id,
        host=host,
        bind_host=config.get(taskmanager.BIND_HOST) or host,
        identity=secrets.identity if config.get(security.INTERNAL_ENABLED) else PemIdentity(),
        data_secret=secrets.data_secret,
        configuration=config.with_value(taskmanager.TMP_DIRS, (working_directory,)).to_dict(redact=False),
        log_directory=str(folder.log_directory),
        log_name=LOG_NAME,
        working_directory=working_directory,
        max_message_bytes=config.get(rpc.MESSAGE_MAX_SIZE).bytes,
        listen_tcp=True,
    )


def run_in_container(
    worker_entry: str,
    template: StartedTemplate | None,
    working_directory: str,
    remove_files: Callable[[], None],
) -> int:
    """Runs the process with the template that it has forked; returns its exit status.

    That is 0 when the TaskExecutor was released, 1 when it failed.
    """
    early = EarlyTemplate(worker_entry, jobs_hear_of_unfit=True, started=template)
    try:
        asyncio.run(_main(early, working_directory, remove_files))
    except Exception as error:
        _log.critical("the TaskExecutor failed", exc_info=error)
        print(f"the TaskExecutor failed: {error}", file=sys.stderr)
        return 1
    return 0


async def _main(early: EarlyTemplate, working_directory: str, remove_files: Callable[[], None]) -> None:
    await early.start()
    life = ContainerLife(remove_files)
    life.start()
    try:
        folder = ContainerFolder.of(os.environ)
        secrets, config = read_container(folder, TASK_EXECUTOR_SECRETS_FILE)
        request = ResourceManagerRequest.of(os.environ)
        bootstrap = bootstrap_of(config, secrets, request, folder, working_directory)
        configure_logging(output_files(bootstrap).log_path)
        _log.info(
            "the TaskExecutor %s starts in %s, pid %d",
            bootstrap.resource_id,
            folder.container_id,
            os.getpid(),
        )
        importlib.import_module("grpc.aio")
        await run_task_executor(bootstrap, early, life)
        _log.info("the TaskExecutor %s has ended", bootstrap.resource_id)
    finally:
        life.stop()
        await early.close()
