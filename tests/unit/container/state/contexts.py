"""Backend contexts with a clock and mails driven by hand, and snapshots kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup
from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.key_groups import key_group_range_for_operator_index
from yarrow.runtime.snapshot.handles import (
    FileStateHandle,
    InlineStateHandle,
    KeyedStateHandle,
    StateHandle,
)

MAX_PARALLELISM = 16
CHECKPOINT = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory=""))


class InlineOutput:
    """A SnapshotOutput that keeps every piece in its handle; `between` is called before each chunk is taken."""

    def __init__(self, between: Callable[[], None] = lambda: None) -> None:
        self._between = between

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        taken = []
        for chunk in chunks:
            taken.append(chunk)
            self._between()
        return InlineStateHandle(data=b"".join(taken))

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        raise AssertionError("the heap writes no files")

    def write_own_file(self, local_path: str) -> StateHandle:
        raise AssertionError("the heap writes no files")


def read_inline(handle: StateHandle) -> bytes:
    """The bytes of a handle of InlineOutput."""
    assert isinstance(handle, InlineStateHandle)
    return handle.data


@dataclass
class Mails:
    """The mailbox of a task: what was posted runs when the test says so."""

    waiting: list[Callable[[], None]] = field(default_factory=list)

    def post(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def context(
    *,
    subtask: int = 0,
    parallelism: int = 1,
    restored: Sequence[KeyedStateHandle] = (),
    clock: ManualClock | None = None,
    mails: Mails | None = None,
    object_reuse: bool = False,
    settings: dict[str, str] | None = None,
    operator_name: str = "op",
) -> KeyedBackendContext:
    """The context of one subtask's backend."""
    clock = clock or ManualClock(1_000_000)
    return KeyedBackendContext(
        operator_name=operator_name,
        operator_id="0" * 32,
        job_id="0" * 32,
        subtask=subtask,
        max_parallelism=MAX_PARALLELISM,
        key_groups=key_group_range_for_operator_index(MAX_PARALLELISM, parallelism, subtask),
        object_reuse=object_reuse,
        clock=clock,
        settings=Settings(settings or {}),
        local_directory="",
        metrics=OperatorMetricGroup(MetricRegistry(clock), ("op",)),
        post=(mails or Mails()).post,
        restored=restored,
        read=read_inline,
    )


def snapshot_of(backend: KeyedStateBackend, checkpoint_id: int = 1) -> tuple[KeyedStateHandle, ...]:
    """A whole snapshot, made at once."""
    return backend.snapshot(checkpoint_id, CHECKPOINT).write(InlineOutput())
