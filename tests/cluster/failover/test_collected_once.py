"""execute_and_collect through failures: with exactly-once checkpoints each row comes once, in its subtask's order."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster.failover.programs import environment
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import CheckpointListener, MapFunction, RuntimeContext
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.testing.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster

ROWS = 3000


class EndsOnce(MapFunction, CheckpointListener):  # type: ignore[type-arg]
    """Raises, or kills its worker, once: a while after a checkpoint that covers rows was complete."""

    def __init__(self, folder: Path, kill: bool) -> None:
        self._folder = str(folder)
        self._kill = kill

    def open(self, runtime_context: RuntimeContext) -> None:
        self._rows = 0
        self._end_at = 0
        if runtime_context.get_attempt_number():
            Path(self._folder, "again").touch()
        self._first = (
            runtime_context.get_attempt_number() == 0 and runtime_context.get_index_of_this_subtask() == 0
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._rows and not self._end_at:
            self._end_at = self._rows + 50
            Path(self._folder, "covered").write_text(str(self._rows))

    def map(self, value: int) -> int:
        self._rows += 1
        if self._first and self._end_at and self._rows >= self._end_at:
            Path(self._folder, "ended").write_text(str(self._rows))
            if self._kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        return value


@pytest.mark.parametrize("kill", [False, True], ids=["raises", "killed"])
def test_each_row_comes_once(tmp_path: Path, kill: bool) -> None:
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = environment(cluster, parallelism=2)
        env.enable_checkpointing(50)
        source = DataGeneratorSource(lambda i: i, ROWS, RateLimiterStrategy.per_second(3000))
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        ending = numbers.map(EndsOnce(tmp_path, kill))
        with ending.execute_and_collect() as rows:
            got = list(rows)
    assert (tmp_path / "ended").exists() and (tmp_path / "again").exists()
    assert sorted(got) == list(range(ROWS))
    for half in (range(ROWS // 2), range(ROWS // 2, ROWS)):
        assert [value for value in got if value in half] == list(half)
