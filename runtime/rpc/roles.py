"""Roles: the role in a process's certificate decides which methods it may call, and which peers it may answer.

Owner: none; constants and pure functions. A role is a name in a certificate that the cluster's own authority
signed, so nobody can take another's. Methods that no table names are refused: a new method is for masters
until it is named here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

#: Name in every certificate of a cluster: peers are recognised by the signer, not by their host.
SERVER_NAME: Final = "yarrow.internal"


class Role(Enum):
    """The kind of a process. Clients have none, because they use REST."""

    #: Dispatcher, ResourceManager and JobMasters.
    JOB_MANAGER = "jobmanager"
    TASK_EXECUTOR = "taskexecutor"
    #: Driver of a job in batch mode; it runs split enumerators, which may be user code.
    SPARK_DRIVER = "sparkdriver"

    @property
    def server_name(self) -> str:
        """The name of this role in a certificate, besides SERVER_NAME."""
        return f"{self.value}.{SERVER_NAME}"


#: The role that serves each gateway: a client requires it of the other end.
SERVED_BY: Final[Mapping[str, Role]] = {
    "DispatcherGateway": Role.JOB_MANAGER,
    "ResourceManagerGateway": Role.JOB_MANAGER,
    "JobMasterGateway": Role.JOB_MANAGER,
    "TaskExecutorGateway": Role.TASK_EXECUTOR,
    "BatchJobMasterGateway": Role.JOB_MANAGER,
    "SparkDriverGateway": Role.SPARK_DRIVER,
    "LocalDriverGateway": Role.TASK_EXECUTOR,
}

#: The methods that a SparkDriver may call, by gateway.
SPARK_DRIVERS_MAY_CALL: Final[Mapping[str, frozenset[str]]] = {
    "BatchJobMasterGateway": frozenset(
        {
            "register_spark_driver",
            "read_spark_configuration",
            "report_spark_application",
            "notify_not_enough_resources",
            "report_stages",
            "report_subtasks",
            "push_collected",
            "push_output",
            "store_committables",
            "begin_commit",
            "check_run",
            "begin_stage_commit",
            "report_stage_end",
            "fail_batch",
            "finish_batch",
            "confirm_cancelled",
            "disconnect_spark_driver",
            "read_blob",
        }
    ),
}

#: The methods that a TaskExecutor may call, by gateway. A master may call everything.
TASK_EXECUTORS_MAY_CALL: Final[Mapping[str, frozenset[str]]] = {
    # Drivers of bounded jobs without Spark live in TaskExecutors.
    **SPARK_DRIVERS_MAY_CALL,
    "ResourceManagerGateway": frozenset(
        {
            "register_task_executor",
            "notify_slot_available",
            "heartbeat_from_task_executor",
            "disconnect_task_executor",
        }
    ),
    "JobMasterGateway": frozenset(
        {
            "register_task_executor",
            "offer_slots",
            "fail_slot",
            "update_task_execution_states",
            "heartbeat_from_task_executor",
            "disconnect_task_executor",
            "send_operator_event",
            "report_watermark",
            "acknowledge_checkpoint",
            "acknowledge_coordinator",
            "decline_checkpoint",
            "notify_end_of_data",
            "push_collected",
            "read_blob",
        }
    ),
}


def role_in(names: Iterable[str]) -> Role | None:
    """The role among the names of a certificate; None = it has none, or claims several."""
    found = set(names)
    roles = [role for role in Role if role.server_name in found]
    return roles[0] if len(roles) == 1 else None


def may_call(role: Role | None, gateway: str, method: str) -> bool:
    """Whether a peer of that role may call a method; without a role it may call nothing."""
    if role is Role.JOB_MANAGER:
        return True
    allowed = {Role.TASK_EXECUTOR: TASK_EXECUTORS_MAY_CALL, Role.SPARK_DRIVER: SPARK_DRIVERS_MAY_CALL}
    return role is not None and method in allowed[role].get(gateway, frozenset())
