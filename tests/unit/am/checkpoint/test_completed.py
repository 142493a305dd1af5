"""Which completed checkpoints are kept, and which outlive their job."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.runtime.snapshot.test_metadata import METADATA
from yarrow.am.checkpoint.completed import (
    CompletedCheckpoint,
    CompletedCheckpointStore,
    FinalOutcome,
    outlives,
)
from yarrow.am.checkpoint.failures import final_cause
from yarrow.am.checkpoint.shared_state import SharedStateRegistry
from yarrow.common.execution_modes import ExternalizedCheckpointRetention
from yarrow.common.job_status import JobStatus
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.rpc.messages import FailureCause


def checkpoint(checkpoint_id: int, *, owned: bool) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        checkpoint_id=checkpoint_id,
        kind=SnapshotKind.CHECKPOINT,
        metadata=METADATA,
        directory="",
        pointer="",
        owned=owned,
    )


def test_nothing_refers_to_files_of_what_the_job_began_from_and_does_not_own() -> None:
    store = CompletedCheckpointStore(3, SharedStateRegistry())
    assert store.oldest_id == -1
    store.restored(checkpoint(7, owned=False))
    assert store.oldest_id == 8
    store.add(checkpoint(9, owned=True))
    store.add(checkpoint(10, owned=True))
    assert store.oldest_id == 9
    claimed = CompletedCheckpointStore(1, SharedStateRegistry())
    claimed.restored(checkpoint(7, owned=True))
    assert claimed.oldest_id == 7


def test_completed_ones_stay_in_order_of_their_ids() -> None:
    store = CompletedCheckpointStore(2, SharedStateRegistry())
    for checkpoint_id in (1, 3, 2):
        dropped = store.add(checkpoint(checkpoint_id, owned=True))
    assert [kept.checkpoint_id for kept in store.all] == [2, 3]
    assert store.latest is not None and store.latest.checkpoint_id == 3
    assert [gone.checkpoint.checkpoint_id for gone in dropped] == [1]
    dropped = store.add(checkpoint(1, owned=True))
    assert [gone.checkpoint.checkpoint_id for gone in dropped] == [1], "no room for an older one"


KEPT = {
    ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS: set(),
    ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION: {JobStatus.FAILED},
    ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION: {JobStatus.FAILED, JobStatus.CANCELED},
}


@pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
def test_what_outlives_its_job(retention: ExternalizedCheckpointRetention) -> None:
    ends = {status for status in JobStatus if status.is_globally_terminal_state()}
    assert ends == {JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED}
    assert {status for status in ends if outlives(FinalOutcome(status), retention)} == KEPT[retention]
    # A job that another master goes on with keeps all.
    assert all(outlives(FinalOutcome(status), retention) for status in JobStatus if status not in ends)


@pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
def test_a_job_that_failed_by_a_final_error_keeps_its_checkpoints(
    retention: ExternalizedCheckpointRetention,
) -> None:
    failed = FailureCause(exception_name="Lost", message="rows are lost", stacktrace="", is_final=True)
    outcome = FinalOutcome.of(JobStatus.FAILED, failed)
    assert outcome.why == "rows are lost" and outlives(outcome, retention)
    store = CompletedCheckpointStore(1, SharedStateRegistry())
    store.add(checkpoint(3, owned=True))
    assert store.end(outcome, retention) == [] and store.has(3)
    again = msgspec.structs.replace(failed, is_final=False)
    for status, cause in ((JobStatus.FAILED, again), (JobStatus.FAILED, None), (JobStatus.CANCELED, failed)):
        assert FinalOutcome.of(status, cause) == FinalOutcome(status), "its retention decides"


def test_a_final_cause_names_the_checkpoint_that_stays() -> None:
    failed = FailureCause(exception_name="Lost", message="rows are lost", stacktrace="", is_final=True)
    assert final_cause(failed, None) == failed
    kept = msgspec.structs.replace(checkpoint(3, owned=True), pointer="hdfs:///jobs/chk-3")
    told = final_cause(failed, kept)
    for text in (told.message, told.stacktrace):
        assert (
            "rows are lost" in text and "Checkpoint 3" in text and "yarrow run -s hdfs:///jobs/chk-3" in text
        )
    in_memory = final_cause(failed, msgspec.structs.replace(kept, pointer=""))
    assert "is lost. Set execution.checkpointing.dir" in in_memory.stacktrace
