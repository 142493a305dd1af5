"""Storages, backends and sources of a program that takes checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.checkpoint_storage import (
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from yarrow.datastream.checkpointing_mode import CheckpointingMode
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import CheckpointedFunction, SourceFunction
from yarrow.datastream.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from yarrow.runtime.common.errors import InvalidProgramError

C = "execution.checkpointing."


def keys(env: StreamExecutionEnvironment) -> dict[str, str]:
    return env.get_configuration().to_dict()


def test_a_storage_becomes_configuration() -> None:
    env = StreamExecutionEnvironment()
    config = env.get_checkpoint_config()
    assert config.get_checkpoint_storage() is None
    config.set_checkpoint_storage(FileSystemCheckpointStorage("hdfs://nn:9870/chk", 0))
    assert keys(env)[f"{C}dir"] == "hdfs://nn:9870/chk"
    assert (keys(env)[f"{C}storage"], keys(env)[f"{C}data-inline-threshold"]) == ("filesystem", "0b")
    config.set_checkpoint_storage_dir("/chk")
    assert keys(env)[f"{C}dir"] == "/chk"
    config.set_checkpoint_storage(JobManagerCheckpointStorage(max_state_size=1000))
    assert keys(env)[f"{C}storage"] == "jobmanager" and f"{C}dir" not in keys(env)
    assert keys(env)[f"{C}jobmanager-storage.max-state-size"] == "1000b"
    assert config.get_checkpoint_storage() == JobManagerCheckpointStorage(max_state_size=1000)
    config.set_checkpoint_storage(CustomCheckpointStorage("stores:Redis"))
    assert keys(env)[f"{C}storage"] == "stores:Redis"
    with pytest.raises(ValueError, match=r"module:name.*'Redis'"):
        CustomCheckpointStorage("Redis")


def test_a_backend_becomes_configuration() -> None:
    env = StreamExecutionEnvironment()
    assert env.get_state_backend() is None
    env.set_state_backend(EmbeddedRocksDBStateBackend(True))
    assert keys(env)["state.backend.type"] == "rocksdb"
    assert env.set_state_backend(HashMapStateBackend()).get_state_backend() == HashMapStateBackend()
    assert keys(env)["state.backend.type"] == "hashmap"


def test_what_is_of_another_type_is_refused_in_words() -> None:
    env: Any = StreamExecutionEnvironment()
    with pytest.raises(
        TypeError, match=r"set_state_backend takes .* not 'rocksdb'; by name .* state.backend.type"
    ):
        env.set_state_backend("rocksdb")
    for wrong in ("10 s", 1e4, True):
        with pytest.raises(TypeError, match=f"{C}interval takes whole milliseconds, an int: not {wrong!r}"):
            env.enable_checkpointing(wrong)


def test_the_default_directory_of_savepoints() -> None:
    env = StreamExecutionEnvironment()
    assert env.get_default_savepoint_directory() is None
    assert env.set_default_savepoint_directory("/sp").get_default_savepoint_directory() == "/sp"


class Counting(SourceFunction[int]):
    def run(self, ctx: Any) -> None:
        """Emits nothing."""

    def cancel(self) -> None:
        """Nothing to end."""


class Remembering(Counting, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        """Remembers nothing either."""

    def snapshot_state(self, context: Any) -> None:
        """Nothing to keep."""


def checkpointed(add: Callable[[StreamExecutionEnvironment], Any], **settings: Any) -> None:
    env = StreamExecutionEnvironment()
    env.enable_checkpointing(1000, settings.get("mode"))
    if settings.get("allowed"):
        env.get_configuration().set_string(f"{C}allow-non-replayable-sources", "true")
    add(env).print()
    env.get_job_graph()


def socket(env: StreamExecutionEnvironment) -> Any:
    return env.socket_text_stream("localhost", 1)


@pytest.mark.differs("StreamExecutionEnvironment.enable_checkpointing", told="cannot read its records again")
def test_exactly_once_is_not_promised_over_what_cannot_be_read_again() -> None:
    with pytest.raises(InvalidProgramError, match=r"'Socket Stream' cannot read its records again"):
        checkpointed(socket)
    with pytest.raises(InvalidProgramError, match=r"'Custom Source' cannot read.*CheckpointedFunction"):
        checkpointed(lambda env: env.add_source(Counting()))


def test_what_is_no_lie_is_accepted() -> None:
    checkpointed(socket, mode=CheckpointingMode.AT_LEAST_ONCE)
    checkpointed(socket, allowed=True)
    checkpointed(lambda env: env.add_source(Remembering()))
    checkpointed(
        lambda env: env.from_source(NumberSequenceSource(1, 2), WatermarkStrategy.no_watermarks(), "numbers")
    )
    env = StreamExecutionEnvironment()
    socket(env).print()
    env.get_job_graph()
