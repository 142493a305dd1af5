"""Rows of execute_and_collect that a killed master had taken, and the client had not: the next one gives each once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.standalone_masters import SlowGatedSource, StandaloneMasters, environment_of
from tests.yarn.watched_jobs import RESTARTS
from yarrow.common.watermark_strategy import WatermarkStrategy

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SPLITS, ROWS = 2, 600


@pytest.fixture
def masters(
    tmp_path: Path, hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> Iterator[StandaloneMasters]:
    folder = tmp_path / f"collected-{tmp_path.name}"
    folder.mkdir()
    cluster = StandaloneMasters(folder, hdfs_folder, hadoop.zookeeper_quorum, hadoop.environment())
    try:
        cluster.start(2)
        yield cluster
    finally:
        cluster.stop()


def settings_of(masters: StandaloneMasters, hdfs_folder: str) -> dict[str, str]:
    return {
        **{key: value for key, value in masters.config.items() if key.startswith("high-availability.")},
        "execution.target": "remote",
        "security.cluster.directory": masters.config["security.cluster.directory"],
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": f"{hdfs_folder}/checkpoints",
        **RESTARTS,
    }


def test_each_row_comes_once_whichever_master_leads(
    masters: StandaloneMasters, tmp_path: Path, hdfs_folder: str
) -> None:
    (tmp_path / "gates").mkdir()
    source = SlowGatedSource("s", str(tmp_path / "gates"), splits=SPLITS, rows=ROWS, patience=300.0)
    env = environment_of(settings_of(masters, hdfs_folder)).set_parallelism(2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").map(lambda row: row[2])
    with stream.execute_and_collect("collected rows") as rows:
        job_id = str(rows.get_job_client().get_job_id())
        got = list(islice(rows, 50))
        # Nobody fetches meanwhile: the master takes rows, and checkpoints cover them, until the gate of the source.
        masters.until_checkpoints(job_id, masters.completed_checkpoints(job_id) + 3)
        before = masters.epoch()
        masters.leader().kill()
        (tmp_path / "gates" / "fired").touch()
        got += rows
    assert masters.epoch() > before, "another master led at the end"
    assert sorted(got) == sorted(row[2] for row in source.all_rows())
    for split in range(SPLITS):
        numbers = [int(name.partition(":")[2]) for name in got if name.startswith(f"s{split}:")]
        assert numbers == list(range(ROWS))


def test_rows_of_a_branch_that_was_done_long_before_come_too(
    masters: StandaloneMasters, tmp_path: Path, hdfs_folder: str
) -> None:
    (tmp_path / "gates").mkdir()
    source = SlowGatedSource("s", str(tmp_path / "gates"), splits=SPLITS, rows=ROWS, patience=300.0)
    env = environment_of(settings_of(masters, hdfs_folder)).set_parallelism(2)
    others = env.from_source(source, WatermarkStrategy.no_watermarks(), "others")
    others.filter(lambda row: False).print()
    numbers = env.from_sequence(1, 100).map(lambda number: number)
    with numbers.execute_and_collect("collected branch") as rows:
        job_id = str(rows.get_job_client().get_job_id())
        # Those of the branch are in front of the first; behind its end come more.
        masters.until_checkpoints(job_id, 6)
        before = masters.epoch()
        masters.leader().kill()
        (tmp_path / "gates" / "fired").touch()
        got = list(rows)
    assert masters.epoch() > before, "another master led at the end"
    assert sorted(got) == list(range(1, 101))
