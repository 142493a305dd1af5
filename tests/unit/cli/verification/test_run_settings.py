"""The settings of both runs: what the comparison leaves out comes back from no configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.cli.verification.both_modes import verify
from yarrow.embedded import embedded_executor
from yarrow.runtime.config.files import load_settings
from yarrow.runtime.config.options import batch, checkpointing, execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import ProgramAborted

_FILE = """
execution.checkpointing.interval: 1 s
execution.checkpointing.dir: file:///checkpoints-of-the-user
execution.savepoint.path: file:///savepoint-of-the-user
execution.state-recovery.claim-mode: CLAIM
execution.state-recovery.ignore-unclaimed-state: true
spark.master: {master}
pipeline.max-parallelism: 7
"""


class _Started(Exception):
    """The cluster of the first run would start."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Gets the settings of the cluster that would start."""
    settings: list[Settings] = []

    def cluster(config: Settings, *_: Any) -> Any:
        settings.append(config)
        raise _Started

    monkeypatch.setattr(embedded_executor, "MiniCluster", cluster)
    return settings


@pytest.mark.parametrize(
    ("master", "kept"), [("spark://elsewhere:7077", None), ("local[3]", "local[3]")], ids=["remote", "local"]
)
def test_the_configuration_file_brings_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Settings], master: str, kept: str | None
) -> None:
    (tmp_path / "flink-conf.yaml").write_text(_FILE.format(master=master))
    monkeypatch.setenv("YARROW_CONF_DIR", str(tmp_path))
    env = environment(1)
    env.from_collection([1]).print()
    with pytest.raises(_Started):
        verify(ProgramAborted(env.get_job_graph(), ()), load_settings({"YARROW_CONF_DIR": str(tmp_path)}))
    (config,) = seen
    for option in (
        checkpointing.INTERVAL,
        execution.SAVEPOINT_PATH,
        execution.CLAIM_MODE,
        execution.IGNORE_UNCLAIMED_STATE,
    ):
        assert not config.is_set(option), option.key
    assert config.get(batch.SPARK_MASTER) == kept
    assert config.text("pipeline.max-parallelism") == "7"


def test_a_program_still_runs_with_the_configuration_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Settings]
) -> None:
    (tmp_path / "flink-conf.yaml").write_text(_FILE.format(master="local[3]"))
    monkeypatch.setenv("YARROW_CONF_DIR", str(tmp_path))
    env = environment(1)
    env.from_collection([1]).print()
    with pytest.raises(_Started):
        embedded_executor.EmbeddedExecutor().execute(env.get_job_graph(), {}, ())
    assert seen[0].is_set(checkpointing.INTERVAL)
