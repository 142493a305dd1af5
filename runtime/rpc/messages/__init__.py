"""Arguments and results of the gateways: msgspec structs, no pickle, no live objects.

Owner: none (frozen values). User code appears only as opaque bytes. Everything here crosses process
boundaries, so a changed field is a changed protocol: raise PROTOCOL_VERSION with it. Each module has the
messages of one subject; senders and receivers import them from here.
"""

from __future__ import annotations

from yarrow.runtime.rpc.messages.base import PROTOCOL_VERSION, Acknowledge, Message
from yarrow.runtime.rpc.messages.checkpoints import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointMetrics,
    CheckpointNotice,
    DeclineCheckpoint,
    NotifyCheckpoint,
    ResetSubtask,
    SavepointFormat,
    SavepointRequest,
    TriggerCheckpoint,
)
from yarrow.runtime.rpc.messages.deployment import (
    NOT_PLACED,
    Deployment,
    TaskDeploymentDescriptor,
    TaskPlacement,
    VertexPlacement,
)
from yarrow.runtime.rpc.messages.details import (
    AttemptDetails,
    ClusterOverview,
    ExceptionEntry,
    ExecutionGraphDetails,
    JobOverview,
    JobResult,
    TaskExecutorInfo,
    VertexDetails,
)
from yarrow.runtime.rpc.messages.payloads import (
    COLLECT_START,
    BlobPart,
    CollectConfirmation,
    CollectPosition,
    CollectRows,
    FileInfo,
    OperatorEvent,
)
from yarrow.runtime.rpc.messages.registrations import (
    HardwareDescription,
    JobMasterRegistration,
    RegistrationRejection,
    RegistrationSuccess,
    TaskExecutorRegistration,
)
from yarrow.runtime.rpc.messages.rescaling import RESCALES_KEPT, RescaleRecord, RescaleRequest
from yarrow.runtime.rpc.messages.slots import (
    AllocatedSlotReport,
    JobInterpreter,
    ResourceProfile,
    ResourceRequirement,
    ResourceRequirements,
    SlotID,
    SlotOffer,
    SlotReport,
    SlotRequest,
    SlotStatus,
    WorkerAddress,
)
from yarrow.runtime.rpc.messages.tasks import (
    AccumulatorReport,
    FailureCause,
    TaskExecutionStateUpdate,
    TaskExecutorToJobMasterHeartbeat,
    TaskExecutorToResourceManagerHeartbeat,
    TaskMetrics,
)

__all__ = [
    "COLLECT_START",
    "NOT_PLACED",
    "PROTOCOL_VERSION",
    "RESCALES_KEPT",
    "AccumulatorReport",
    "Acknowledge",
    "AcknowledgeCheckpoint",
    "AcknowledgeCoordinator",
    "AllocatedSlotReport",
    "AttemptDetails",
    "BlobPart",
    "CheckpointMetrics",
    "CheckpointNotice",
    "ClusterOverview",
    "CollectConfirmation",
    "CollectPosition",
    "CollectRows",
    "DeclineCheckpoint",
    "Deployment",
    "ExceptionEntry",
    "ExecutionGraphDetails",
    "FailureCause",
    "FileInfo",
    "HardwareDescription",
    "JobInterpreter",
    "JobMasterRegistration",
    "JobOverview",
    "JobResult",
    "Message",
    "NotifyCheckpoint",
    "OperatorEvent",
    "RegistrationRejection",
    "RegistrationSuccess",
    "RescaleRecord",
    "RescaleRequest",
    "ResetSubtask",
    "ResourceProfile",
    "ResourceRequirement",
    "ResourceRequirements",
    "SavepointFormat",
    "SavepointRequest",
    "SlotID",
    "SlotOffer",
    "SlotReport",
    "SlotRequest",
    "SlotStatus",
    "TaskDeploymentDescriptor",
    "TaskExecutionStateUpdate",
    "TaskExecutorInfo",
    "TaskExecutorRegistration",
    "TaskExecutorToJobMasterHeartbeat",
    "TaskExecutorToResourceManagerHeartbeat",
    "TaskMetrics",
    "TaskPlacement",
    "TriggerCheckpoint",
    "VertexDetails",
    "VertexPlacement",
    "WorkerAddress",
]
