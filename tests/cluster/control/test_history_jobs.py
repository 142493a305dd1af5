"""The job of a stream's history whose driver is lost: the savepoint is whole, or there is none."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.cluster.control.control_cluster import ControlCluster, control_cluster, eventually
from tests.support.fake_spark_driver import FakeSparkDriver
from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.rpc.loops import run
from yarrow.common.job_status import JobStatus
from yarrow.runtime.config.options import batch
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles, SavepointFolder


def history_to(path: Path) -> JobGraph:
    settings = {batch.HISTORY_UNTIL.key: "NOW", batch.HISTORY_SAVEPOINT_PATH.key: str(path)}
    return msgspec.structs.replace(
        linear_job(Stage(2), Stage(3)), job_type=JobType.BATCH, configuration=settings
    )


async def writing(cluster: ControlCluster, driver: FakeSparkDriver, path: Path) -> ForeignFiles:
    """A driver that has begun the savepoint, and of whose tasks one has written its state."""
    await driver.begin()
    await eventually(lambda: bool(driver.submissions))
    place = SavepointFolder(str(path)).foreign_files(driver.graph.job_id)
    (path / f"{STATE_FILE_PREFIX}{place.hex_id()}").write_bytes(b"state")
    return place


def test_a_killed_driver_without_restarts_leaves_no_savepoint(tmp_path: Path) -> None:
    path = tmp_path / "savepoints" / "made"

    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id = await cluster.submit(history_to(path))
            driver = await cluster.next_spark_driver()
            await writing(cluster, driver, path)
            await cluster.spark_drivers.crash(driver)
            result = await cluster.result(job_id)
            assert result.status is JobStatus.FAILED
            assert driver.driver_id in (result.cause.message if result.cause else "")
            await eventually(lambda: not path.exists())
            assert path.parent.exists()

    run(body())


def test_a_job_whose_end_of_history_cannot_be_read_ends_all_the_same(tmp_path: Path) -> None:
    graph = history_to(tmp_path / "savepoint")
    wrong = msgspec.structs.replace(
        graph, configuration={**graph.configuration, batch.HISTORY_UNTIL.key: "some day"}
    )

    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id = await cluster.submit(wrong)
            driver = await cluster.next_spark_driver()
            await driver.begin()
            await eventually(lambda: bool(driver.submissions))
            await cluster.spark_drivers.crash(driver)
            assert (await cluster.result(job_id)).status is JobStatus.FAILED

    run(body())
