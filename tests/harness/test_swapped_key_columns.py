"""An edge keyed by several columns: columns of one type that change places between a snapshot and its restore."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.kept_snapshots import KeptSnapshots
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.container.fragment import FragmentFailedError
from yarrow.container.operators.base import RestoredState
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import CheckpointBarrier
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.testing.operator_harness import HarnessState, OperatorHarness

BATCH = pa.record_batch({"start": ["Rom", "Oslo"], "end": ["Oslo", "Rom"], "rows": [1, 2]})


def harness(columns: tuple[str, ...], state: HarnessState) -> OperatorHarness:
    return OperatorHarness(
        lambda stream: stream.key_by(*columns).sum("rows").name("Totals"), types=[BATCH.schema], state=state
    )


def test_keys_of_columns_are_restored_in_their_order_alone() -> None:
    snapshots = KeptSnapshots()
    options = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, location=CheckpointLocation(directory=""))
    with harness(("start", "end"), HarnessState(snapshots=snapshots)) as running:
        running.push_batch(BATCH)
        running.send(CheckpointBarrier(1, 0, options=options))
        (snapshot,) = snapshots.taken
        taken = snapshot.write(MemoryOutput())
        snapshot.settled()
        (vertex,) = [each.id for each in running.graph.vertices if "Totals" in each.name]

    def restore(graph: JobGraph) -> Any:
        return graph, {JobVertexID(vertex): RestoredState(1, taken, read_inline)}

    with harness(("start", "end"), HarnessState(restore=restore)) as running:
        running.push_batch(BATCH)
        (found,) = running.record_batches()
        assert found.to_pylist() == [
            {"start": "Rom", "end": "Oslo", "rows_sum": 2},
            {"start": "Oslo", "end": "Rom", "rows_sum": 4},
        ]
    match = r"operator 'Totals'.*\['start', 'end'\].*\['end', 'start'\].*key_by in their former order"
    with (
        pytest.raises(FragmentFailedError, match=match),
        harness(("end", "start"), HarnessState(restore=restore)),
    ):
        pass
