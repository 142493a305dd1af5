"""State kept in the master, each subtask's within the limits and all together above a message: it is restored."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from yarrow.common import Types
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.datastream import (
    CheckpointedFunction,
    CheckpointListener,
    JobManagerCheckpointStorage,
    MapFunction,
)
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster
#: So many rows that no subtask is done before a checkpoint is complete.
SUBTASKS, ROWS, SIZE = 4, 80_000, 700_000


class Heavy(MapFunction[int, Any], CheckpointedFunction, CheckpointListener):
    """Keeps a long text; the first attempt fails once a checkpoint is complete."""

    _texts: ListState[str]

    def initialize_state(self, context: Any) -> None:
        self._restored = context.is_restored()
        self._complete = False
        self._pause = threading.Event()
        self._texts = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("texts", Types.STRING())
        )
        if not self._restored:
            self._texts.add("x" * SIZE)

    def snapshot_state(self, context: Any) -> None:
        """The text is in the state already."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._complete = True

    def map(self, value: int) -> Any:
        if not self._restored:
            self._pause.wait(0.005)
            if self._complete:
                raise RuntimeError("as planned")
        return self._restored, [len(text) for text in self._texts]


@pytest.mark.parametrize("processes", [True, False])
def test_what_was_admitted_part_by_part_is_restored_together(processes: bool) -> None:
    limits = {
        "rpc.message.max-size": "1 mb",
        "execution.checkpointing.jobmanager-storage.max-state-size": "1 mb",
    }
    with mini_cluster(1, SUBTASKS, processes=processes, configuration=limits) as cluster:
        env = cluster.get_execution_environment(limits).set_parallelism(SUBTASKS)
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
        env.enable_checkpointing(50)
        env.get_checkpoint_config().set_checkpoint_storage(
            JobManagerCheckpointStorage(max_state_size=1 << 20)
        )
        with env.from_sequence(1, ROWS).map(Heavy()).execute_and_collect() as rows:
            found = list(rows)
    assert len(found) == ROWS
    restored = [sizes for was_restored, sizes in found if was_restored]
    assert restored and all(sizes == [SIZE] for sizes in restored)
