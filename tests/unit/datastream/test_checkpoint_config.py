"""CheckpointConfig: each setting comes back, is what the JobMaster reads in the job, and refuses what cannot be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.common import Duration, Time
from yarrow.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    StreamExecutionEnvironment,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError

RETAINED = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
DELETED = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
NEVER = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS


def read_by_the_job_master(env: StreamExecutionEnvironment) -> CheckpointSettings:
    """What the master of a job of this environment goes by."""
    env.from_sequence(1, 9).print()
    return CheckpointSettings.of(Settings(env.get_job_graph().configuration))


def test_a_job_without_settings_has_flinks_defaults() -> None:
    config = environment().get_checkpoint_config()
    assert config.get_checkpoint_interval() == -1
    assert config.get_checkpoint_timeout() == CheckpointConfig.DEFAULT_TIMEOUT == 600_000
    assert config.get_min_pause_between_checkpoints() == 0
    assert config.get_max_concurrent_checkpoints() == 1
    assert config.get_tolerable_checkpoint_failure_number() == 0
    assert config.get_externalized_checkpoint_retention() is NEVER
    assert not config.is_externalized_checkpoints_enabled()
    assert not config.is_unaligned_checkpoints_enabled()
    assert not config.is_force_unaligned_checkpoints()
    assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(0)
    assert read_by_the_job_master(environment()).interval is None


def test_the_times_of_checkpoints_reach_the_job_master() -> None:
    env = environment()
    config = env.enable_checkpointing(5_000).get_checkpoint_config()
    config.set_checkpoint_timeout(2_500).set_min_pause_between_checkpoints(1_500)
    config.set_max_concurrent_checkpoints(3).set_tolerable_checkpoint_failure_number(2)
    assert config.get_checkpoint_interval() == 5_000
    assert config.get_checkpoint_timeout() == 2_500
    assert config.get_min_pause_between_checkpoints() == 1_500
    assert config.get_max_concurrent_checkpoints() == 3
    assert config.get_tolerable_checkpoint_failure_number() == 2
    read = read_by_the_job_master(env)
    assert (read.interval, read.timeout, read.min_pause) == (5.0, 2.5, 1.5)
    assert (read.max_concurrent, read.tolerable_failures) == (3, 2)


def test_the_mode_decides_how_often_a_record_counts() -> None:
    env = environment()
    config = env.get_checkpoint_config()
    assert env.get_checkpointing_consistency_mode() is CheckpointConfig.DEFAULT_MODE
    assert read_by_the_job_master(env).exactly_once
    config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert not read_by_the_job_master(env).exactly_once


@pytest.mark.parametrize(("retention", "outlive"), [(RETAINED, True), (DELETED, True), (NEVER, False)])
def test_retention_says_whether_checkpoints_outlive_their_job(
    retention: ExternalizedCheckpointRetention, outlive: bool
) -> None:
    env = environment()
    config = env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    assert config.get_externalized_checkpoint_retention() is retention
    assert config.is_externalized_checkpoints_enabled() is outlive
    assert read_by_the_job_master(env).retention is retention


def test_barriers_overtake_records_from_the_time_that_was_set() -> None:
    env = environment()
    config = env.get_checkpoint_config().enable_unaligned_checkpoints()
    config.set_aligned_checkpoint_timeout(Duration.of_seconds(3))
    assert config.is_unaligned_checkpoints_enabled() and env.is_unaligned_checkpoints_enabled()
    assert config.get_aligned_checkpoint_timeout() == config.get_alignment_timeout() == Duration.of_seconds(3)
    read = read_by_the_job_master(env)
    assert read.unaligned and read.aligned_timeout_ms == 3_000
    config.set_alignment_timeout(Time.milliseconds(40))
    assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(40)
    config.disable_unaligned_checkpoints()
    assert not config.is_unaligned_checkpoints_enabled() and not env.is_unaligned_checkpoints_enabled()
    assert not read_by_the_job_master(env).unaligned


def test_forcing_unaligned_checkpoints_is_a_setting_of_the_job() -> None:
    """The JobMaster reads the key; tests/harness/test_unaligned_checkpoints.py shows how tasks use it."""
    env = environment()
    config = env.get_checkpoint_config()
    assert not env.is_force_unaligned_checkpoints()
    config.set_force_unaligned_checkpoints()
    assert config.is_force_unaligned_checkpoints() and env.is_force_unaligned_checkpoints()
    env.from_sequence(1, 9).print()
    assert env.get_job_graph().configuration["execution.checkpointing.unaligned.forced"] == "true"
    assert not config.set_force_unaligned_checkpoints(False).is_force_unaligned_checkpoints()
    assert not env.is_force_unaligned_checkpoints()


IMPOSSIBLE: dict[str, Callable[[CheckpointConfig], object]] = {
    "execution.checkpointing.timeout must be at least 10 ms, not 9 ms": lambda c: c.set_checkpoint_timeout(9),
    "execution.checkpointing.min-pause must be at least 0 ms, not -1 ms": (
        lambda c: c.set_min_pause_between_checkpoints(-1)
    ),
    "max_concurrent_checkpoints must be at least 1, not 0": lambda c: c.set_max_concurrent_checkpoints(0),
    "tolerable_checkpoint_failure_number must not be negative: -1": (
        lambda c: c.set_tolerable_checkpoint_failure_number(-1)
    ),
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_what_cannot_be_is_refused_and_changes_nothing(message: str) -> None:
    env = environment()
    before = env.get_configuration().to_dict()
    with pytest.raises(ValueError, match=message):
        IMPOSSIBLE[message](env.get_checkpoint_config())
    assert env.get_configuration().to_dict() == before


CONTRADICTIONS: list[Callable[[CheckpointConfig], object]] = [
    lambda config: config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE),
    lambda config: config.set_max_concurrent_checkpoints(2),
]


@pytest.mark.parametrize("contradict", CONTRADICTIONS, ids=["mode", "concurrent"])
def test_unaligned_checkpoints_come_one_at_a_time_and_count_records_once(
    contradict: Callable[[CheckpointConfig], object],
) -> None:
    env = environment()
    contradict(env.get_checkpoint_config().enable_unaligned_checkpoints())
    with pytest.raises(ConfigError, match=r"execution\.checkpointing\.unaligned\.enabled is true"):
        read_by_the_job_master(env)
