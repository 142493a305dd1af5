"""A task fails while its job ends with a savepoint that is complete: the whole job goes on from it, and who asked
learns that it has not stopped.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from yarrow.common import JobStatus
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import MapFunction
from yarrow.datastream.connectors.datagen import DataGeneratorSource
from yarrow.datastream.functions import CheckpointedFunction, CheckpointListener
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.runtime.common.errors import CheckpointFailedError
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = pytest.mark.cluster

#: Of each region: so many that none is at its end before the job is stopped.
ROWS = 30_000


class Ends(MapFunction[int, int], CheckpointedFunction, CheckpointListener):
    """Notes its end; of the region that `fails`: fails once, when told of a checkpoint, behind the end of the other.

    It lets a row pass now and then, and all at once where there is a file `fast`.
    """

    def __init__(self, folder: str, fails: bool) -> None:
        self._folder = Path(folder)
        self._fails = fails

    def initialize_state(self, context: Any) -> None:
        self._pause = threading.Event()

    def snapshot_state(self, context: Any) -> None:
        return None

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._fails and not (self._folder / "failed").exists():
            wait_until(lambda: (self._folder / "ended").exists())
            (self._folder / "failed").touch()
            raise RuntimeError("asked for")

    def map(self, value: int) -> int:
        if not (self._folder / "fast").exists():
            self._pause.wait(0.001)
        return value

    def close(self) -> None:
        if not self._fails:
            (self._folder / "ended").touch()


def runs(client: LocalJobClient, folder: str) -> bool:
    with suppress(CheckpointFailedError):
        client.trigger_savepoint(folder).result()
        return True
    return False


def test_all_regions_go_on_when_a_task_fails_behind_the_savepoint_that_stops_the_job(tmp_path: Path) -> None:
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": f"{tmp_path}/chk",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "0 s",
    }
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = cluster.get_execution_environment(settings).set_parallelism(1)
        for fails in (False, True):
            source = DataGeneratorSource(lambda i: i, ROWS)
            rows = env.from_source(source, WatermarkStrategy.no_watermarks(), f"rows {fails}")
            ends = rows.slot_sharing_group(str(fails)).map(Ends(str(tmp_path), fails))
            ends.sink_to(TransactionalFiles(str(tmp_path / str(fails))))
        client = cluster.submit(env.get_job_graph("two regions"))
        wait_until(lambda: runs(client, f"{tmp_path}/sp"))
        with pytest.raises(
            CheckpointFailedError, match="is complete, but a task failed before the job had ended"
        ):
            client.stop_with_savepoint(False, f"{tmp_path}/sp").result(180)
        # It had ended, with the savepoint and far from the end of its rows: by itself it would not go on.
        assert (tmp_path / "failed").exists()
        assert len(CommittedFiles(tmp_path / "False").rows()) < ROWS
        (tmp_path / "fast").touch()
        client.get_job_execution_result().result(180)
        assert client.get_job_status().result() is JobStatus.FINISHED
    for fails in (False, True):
        assert sorted(CommittedFiles(tmp_path / str(fails)).rows()) == list(range(ROWS))
