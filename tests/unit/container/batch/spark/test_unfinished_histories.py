"""The savepoint of a run that ends without its master: nothing of it is left, whenever the run has begun it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.history_program import Case, Everything, history_graph
from tests.unit.runtime.rpc.loops import run
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.spark.batch_run import BatchRun, RunServices
from yarrow.container.batch.spark.session import SparkHost
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.graph.job_graph import encode_job_graph
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.messages import BatchSubmission
from yarrow.runtime.snapshot.errors import SnapshotStorageError

CASE = Case([("a", 1, 1)], 1, 1, 5, 0, Everything(0, 0, 0), 0)


class Begun(BatchRun):
    """A run that has no Spark: it calls `then` with its files when its savepoint has begun."""

    def __init__(self, folder: Path, path: Path, then: Callable[[Begun, Any], None]) -> None:
        graph = history_graph(CASE, str(path))
        submission = BatchSubmission(job_id=graph.job_id, run=0, job_graph=encode_job_graph(graph))
        services = RunServices(
            host=cast(SparkHost, SimpleNamespace()),
            master=cast(BatchJobMasterGateway, SimpleNamespace()),
            configuration={},
            result_key=b"",
            clock=ManualClock(),
            part_bytes=1,
            tokens=NewestTokens(),
        )
        super().__init__(submission, services, folder)
        self._graph, self._plan, self._then = graph, self._planned(graph), then

    def _begin_savepoint(self) -> Any:
        place = super()._begin_savepoint()
        self._then(self, place)
        return place


def test_an_orphaned_run_gives_its_savepoint_up_at_once(tmp_path: Path) -> None:
    path = tmp_path / "savepoint"

    def orphaned(begun: Begun, place: Any) -> None:
        assert path.exists()
        begun.orphaned()
        assert not path.exists()
        with pytest.raises(SnapshotStorageError, match="was given up"):
            place.refuse_late()

    async def body() -> None:
        begun = Begun(tmp_path / "run", path, orphaned)
        await asyncio.to_thread(begun._begin_savepoint)

    run(body())


def test_a_savepoint_that_begins_behind_the_end_of_its_run_is_given_up(tmp_path: Path) -> None:
    """The run's thread goes on when the run is cancelled."""
    path = tmp_path / "savepoint"

    async def body() -> None:
        begun = Begun(tmp_path / "run", path, lambda begun, place: None)
        begun.orphaned()
        await asyncio.to_thread(begun._begin_savepoint)
        assert not path.exists()

    run(body())
