"""Makes an application's submission to YARN from the configuration: containers, scripts, variables, access.

Owner: the client's thread that submits; pure. No secret passes through here except as the path of a file.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from yarrow.common.values.quantities import MemorySize
from yarrow.common.values.secret_keys import is_secret_key
from yarrow.runtime.config.memory import (
    JOB_MANAGER_BASE,
    SKEIN_MEMORY,
    check_job_manager_memory,
    task_executor_budget,
)
from yarrow.runtime.config.options import high_availability, jobmanager, rest, security, taskmanager, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import MemoryBudgetError
from yarrow.runtime.rpc.loopback import LOOPBACK_NAMES
from yarrow.runtime.yarn.gateways import ApplicationSubmission, ContainerShape, Resource
from yarrow.runtime.yarn.skein_driver import FAST_START
from yarrow.runtime.yarn.spark_driver_shape import spark_driver_shape

MASTER_MODULE: Final = "yarrow.am.yarn.application_master"
TASK_EXECUTOR_MODULE: Final = "yarrow.container.process.yarn_task_executor"
SPARK_DRIVER_MODULE: Final = "yarrow.container.process.yarn_spark_driver"
DEFAULT_QUEUE: Final = "default"
_SKEIN_TYPE: Final = "skein"
_MASTER_VARIABLES: Final = "containerized.master.env."
_TASK_EXECUTOR_VARIABLES: Final = "containerized.taskmanager.env."
#: For Skein's Java ApplicationMaster, which shares the master's container. Its page shows the entries of a
#: java.util.Map by reflection, which JDKs from 17 on refuse unless the package is opened.
_MASTER_JAVA_OPTIONS: Final = " ".join(
    (*FAST_START, "-Djava.net.preferIPv4Stack=true", "--add-opens=java.base/java.util=ALL-UNNAMED")
)
_ATTEMPTS_WITH_HIGH_AVAILABILITY: Final = 2
_BIND_OPTIONS: Final = (jobmanager.BIND_HOST, taskmanager.BIND_HOST, rest.BIND_ADDRESS)


@dataclass(frozen=True, slots=True)
class ContainerContent:
    """Files, variables and interpreter of the containers of one role."""

    resources: Sequence[Resource]
    #: Variables that the environment needs.
    variables: Mapping[str, str]
    #: Absolute, or relative to the container's folder.
    interpreter: str


def build_submission(
    config: Settings,
    name: str,
    master: ContainerContent,
    task_executor: ContainerContent,
    spark_driver: ContainerContent,
    master_log_settings: str = "",
) -> ApplicationSubmission:
    """The whole submission. Raises InvalidOptionValue or MemoryBudgetError for impossible sizes."""
    view_users, view_groups = access_list(config.get(yarn.VIEW_ACLS))
    file_systems = config.get(security.KERBEROS_FILE_SYSTEMS)
    modify_users, modify_groups = access_list(config.get(yarn.MODIFY_ACLS))
    return ApplicationSubmission(
        name=name,
        queue=config.get(yarn.APPLICATION_QUEUE) or DEFAULT_QUEUE,
        tags=tags(config),
        max_attempts=max_attempts(config),
        node_label=config.get(yarn.APPLICATION_NODE_LABEL) or "",
        master=master_shape(config),
        master_script=script(master.interpreter, MASTER_MODULE),
        master_resources=master.resources,
        master_environment={
            **master.variables,
            **config.below(_MASTER_VARIABLES),
            "JDK_JAVA_OPTIONS": _MASTER_JAVA_OPTIONS,
        },
        master_log_settings=master_log_settings,
        task_executor=task_executor_shape(config),
        task_executor_script=script(task_executor.interpreter, TASK_EXECUTOR_MODULE),
        task_executor_resources=task_executor.resources,
        task_executor_environment={**task_executor.variables, **config.below(_TASK_EXECUTOR_VARIABLES)},
        spark_driver=spark_driver_shape(config),
        spark_driver_script=script(spark_driver.interpreter, SPARK_DRIVER_MODULE),
        spark_driver_resources=spark_driver.resources,
        # It runs the functions that TaskExecutors run otherwise.
        spark_driver_environment={**spark_driver.variables, **config.below(_TASK_EXECUTOR_VARIABLES)},
        file_systems=file_systems or (),
        view_users=view_users,
        view_groups=view_groups,
        modify_users=modify_users,
        modify_groups=modify_groups,
    )


def script(interpreter: str, module: str) -> str:
    """The shell script of a container: it becomes the Python process, so that signals and exit status are Python's.

    Variables of the NodeManager for a Python or a Java do not apply to ours.
    """
    return (
        # The NodeManager gathers logs as a member of the group; nobody else reads a container's output.
        "umask 027\n"
        "unset PYTHONPATH PYTHONHOME PYTHONSTARTUP JDK_JAVA_OPTIONS\n"
        f"exec {shlex.quote(interpreter)} -m {module}\n"
    )


def master_shape(config: Settings) -> ContainerShape:
    """The ApplicationMaster's container: jobmanager.memory.process.size is Python's master and Skein's JVM together."""
    check_job_manager_memory(config)
    process = config.get(jobmanager.PROCESS_SIZE)
    needed = MemorySize(
        SKEIN_MEMORY.bytes + JOB_MANAGER_BASE.bytes + config.get(jobmanager.JOB_STORE_CACHE_SIZE).bytes
    )
    if process < needed:
        raise MemoryBudgetError(
            f"{jobmanager.PROCESS_SIZE.key} of {process.human()} is too small for YARN: the container also holds"
            f" Skein's ApplicationMaster, a JVM of {SKEIN_MEMORY.human()}. Raise it to at least `{needed}`.",
            (jobmanager.PROCESS_SIZE.key,),
        )
    return ContainerShape(
        memory_mb=_mebibytes(config.get(jobmanager.PROCESS_SIZE)),
        vcores=config.get(yarn.APP_MASTER_VCORES),
        node_label=config.get(yarn.APPLICATION_NODE_LABEL) or "",
    )


def task_executor_shape(config: Settings) -> ContainerShape:
    """A TaskExecutor's container: supervisor, template and workers in taskmanager.memory.process.size."""
    task_executor_budget(config)
    cores = config.get(yarn.CONTAINER_VCORES)
    return ContainerShape(
        memory_mb=_mebibytes(config.get(taskmanager.PROCESS_SIZE)),
        vcores=cores if cores > 0 else config.get(taskmanager.NUMBER_OF_TASK_SLOTS),
        node_label=config.get(yarn.TASK_MANAGER_NODE_LABEL) or "",
    )


def max_attempts(config: Settings, limit: int | None = None) -> int:
    """yarn.application-attempts, else 2 with high availability and 1 without; not more than YARN's `limit`."""
    configured = config.get(yarn.APPLICATION_ATTEMPTS)
    if configured is None:
        highly_available = config.get(high_availability.TYPE).upper() != "NONE"
        configured = _ATTEMPTS_WITH_HIGH_AVAILABILITY if highly_available else 1
    # The master must know which attempt is the last: YARN does not say when it starts fewer.
    return configured if limit is None else max(1, min(configured, limit))


def tags(config: Settings) -> frozenset[str]:
    """yarn.tags, and the application type, which Skein cannot set."""
    configured = config.get(yarn.TAGS)
    chosen = set(configured or ())
    kind = config.get(yarn.APPLICATION_TYPE)
    if kind and kind.lower() != _SKEIN_TYPE:
        chosen.add(kind.lower())
    return frozenset(chosen)


def without_effect(config: Settings) -> Sequence[str]:
    """A sentence for each accepted setting that Skein cannot apply."""
    sentences = []
    if config.get(yarn.APPLICATION_PRIORITY) not in (-1, 0):
        sentences.append(
            f"{yarn.APPLICATION_PRIORITY.key} has no effect: Skein submits applications with YARN's default"
            " priority."
        )
    interval = yarn.ATTEMPT_FAILURES_VALIDITY_INTERVAL
    if config.is_set(interval) and config.get(interval) > 0:
        sentences.append(
            f"{interval.key} has no effect: Skein knows no such interval, every failed attempt"
            f" counts towards {yarn.APPLICATION_ATTEMPTS.key}."
        )
    if not config.get(security.DELEGATION_TOKENS_ENABLED):
        sentences.append(
            f"{security.DELEGATION_TOKENS_ENABLED.key}: false leaves the tokens of the submission: Skein gets them"
            " wherever Hadoop asks for Kerberos. The ApplicationMaster gets no new ones."
        )
    for option in (security.DELEGATION_TOKENS_RETRY_BACKOFF, security.DELEGATION_TOKENS_TIME_RATIO):
        if config.is_set(option) and (why := _why_not_renewed(config)) is not None:
            sentences.append(f"{option.key} has no effect: {why}.")
    kind = config.get(yarn.APPLICATION_TYPE)
    if kind and kind.lower() != _SKEIN_TYPE:
        sentences.append(
            f"{yarn.APPLICATION_TYPE.key}: YARN shows the type `skein`; `{kind.lower()}` becomes a tag of"
            " the application."
        )
    return sentences


def _why_not_renewed(config: Settings) -> str | None:
    """Why the ApplicationMaster gets no new tokens, as the end of a sentence; None = it gets them."""
    for switch in (security.DELEGATION_TOKENS_ENABLED, security.INTERNAL_ENABLED):
        if not config.get(switch):
            return f"{switch.key} is false, so that the ApplicationMaster gets no new tokens"
    if not config.is_set(security.KERBEROS_KEYTAB):
        return f"the ApplicationMaster has no keytab to get new tokens by. Set {security.KERBEROS_KEYTAB.key}"
    has_keytab = config.get(yarn.SHIP_KEYTAB) or config.is_set(yarn.LOCALIZED_KEYTAB)
    if not has_keytab:
        return (
            f"the ApplicationMaster has no keytab, since {yarn.SHIP_KEYTAB.key} is false. Set"
            f" {yarn.LOCALIZED_KEYTAB.key}"
        )
    return None


def access_list(text: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Users and groups of `user1,user2 group1,group2`; `*` is everybody."""
    users, _, groups = (text or "").strip().partition(" ")
    return _names(users), _names(groups)


def divided(config: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """The configuration in two parts: for every container, and for the secrets' files alone."""
    values = _for_containers(config.to_dict(redact=False))
    sensitive = {key: value for key, value in values.items() if is_secret_key(key)}
    return {key: value for key, value in values.items() if key not in sensitive}, sensitive


def _for_containers(values: dict[str, str]) -> dict[str, str]:
    """The configuration without listening addresses on the client's own loopback.

    The file of a standalone cluster has such addresses, and containers on several hosts must reach each other.
    Flink's client leaves them out too.
    """
    bind = {
        name
        for option in _BIND_OPTIONS
        for name in (option.key, *option.fallback_keys, *option.deprecated_keys)
    }
    return {key: value for key, value in values.items() if key not in bind or value not in LOOPBACK_NAMES}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _mebibytes(size: MemorySize) -> int:
    return -(-size.bytes // (1 << 20))
