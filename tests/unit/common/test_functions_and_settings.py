"""Interface modules: abstract functions, retry strategies, state descriptors, tags and settings as values."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import pytest

from yarrow.common import Duration, JobID, JobStatus, MemorySize, RestartStrategies, Time, Types
from yarrow.common.accumulators import AverageAccumulator, Histogram, IntCounter, ListAccumulator
from yarrow.common.serialization import Encoder, RowFieldExtractorSchema, SimpleStringSchema
from yarrow.common.types import Row
from yarrow.datastream.async_retry_predicates import empty_result_predicate, has_exception_predicate
from yarrow.datastream.async_retry_strategies import (
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    NoRetryStrategy,
    RetryPredicate,
)
from yarrow.datastream.checkpoint_storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage
from yarrow.datastream.functions import (
    AggregateFunction,
    AsyncRetryStrategy,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    SourceFunction,
)
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.user_functions import is_rich
from yarrow.datastream.slot_sharing_group import SlotSharingGroup
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.datastream.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend


@pytest.mark.parametrize("function", [MapFunction, SourceFunction, KeyedProcessFunction])
def test_a_function_without_its_method_cannot_be_made(function: type[Any]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        function()


def test_delays_grow_up_to_the_limit() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(5, 100, 1_000, 3.0, None, None)
    assert [strategy.get_backoff_time_millis(n) for n in range(1, 6)] == [100, 300, 900, 1_000, 1_000]
    assert strategy.get_backoff_time_millis(10_000) == 1_000
    assert strategy.can_retry(5) and not strategy.can_retry(6)
    fixed = AsyncRetryStrategy.fixed_delay(2, 50, bool, None)
    assert [fixed.get_backoff_time_millis(n) for n in (1, 2)] == [50, 50]
    assert fixed.get_retry_predicate().result_predicate() is bool
    assert not AsyncRetryStrategy.no_restart().can_retry(1)


def test_strategies_say_how_often_after_which_wait_and_for_which_outcomes() -> None:
    exponential = ExponentialBackoffDelayRetryStrategy(2, 100, 1_000, 2.0, None, None)
    assert [exponential.can_retry(attempts) for attempts in (1, 2, 3)] == [True, True, False]
    fixed = FixedDelayRetryStrategy(3, 50, empty_result_predicate, has_exception_predicate)
    assert [fixed.get_backoff_time_millis(attempts) for attempts in (1, 2, 3)] == [50, 50, 50]
    assert [fixed.can_retry(attempts) for attempts in (1, 3, 4)] == [True, True, False]
    predicate = fixed.get_retry_predicate()
    assert isinstance(predicate, RetryPredicate)
    is_again, is_failed = predicate.result_predicate(), predicate.exception_predicate()
    assert is_again is not None and is_again([]) and not is_again([1])
    assert is_failed is not None and is_failed(KeyError("gone"))
    never = NoRetryStrategy()
    assert not never.can_retry(1) and never.get_backoff_time_millis(1) == -1
    assert RetryPredicate(None, None).result_predicate() is None
    assert RetryPredicate(None, None).exception_predicate() is None


class Sums(AggregateFunction[int, int, str]):
    """Sums as texts."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> str:
        return str(accumulator)

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def test_descriptors_declare_types() -> None:
    assert ValueStateDescriptor[int]("v", Types.LONG()).type_info == Types.LONG()
    assert ListStateDescriptor[int]("l", Types.LONG()).type_info == Types.LIST(Types.LONG())
    assert MapStateDescriptor[str, int]("m", Types.STRING(), Types.LONG()).type_info == Types.MAP(
        Types.STRING(), Types.LONG()
    )
    assert ValueStateDescriptor[int]("v").type_info == Types.PICKLED_BYTE_ARRAY()
    added = ReducingStateDescriptor("r", operator.add, Types.LONG()).get_reduce_function()
    assert isinstance(added, ReduceFunction) and added.reduce(2, 3) == 5
    assert not is_rich(added)
    sums = Sums()
    kept = AggregatingStateDescriptor[int, int, str]("a", sums, Types.LONG())
    assert kept.get_agg_function() is sums and kept.type_info == Types.LONG()
    with pytest.raises(TypeError, match="'a': expected an AggregateFunction"):
        AggregatingStateDescriptor[int, int, int]("a", operator.add, Types.LONG())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'v'.*TypeInformation"):
        ValueStateDescriptor[int]("v", int)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="non-empty"):
        ValueStateDescriptor[int]("")


def test_time_to_live() -> None:
    config = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .update_ttl_on_read_and_write()
        .cleanup_incrementally(10)
        .build()
    )
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    incremental = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
    assert incremental is not None and incremental.get_cleanup_size() == 10
    descriptor = ValueStateDescriptor[int]("v", Types.LONG())
    descriptor.enable_time_to_live(config)
    assert descriptor.ttl_config is config
    assert config.is_enabled() and config.get_ttl() == Time.seconds(1)
    assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    off = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .set_update_type(StateTtlConfig.UpdateType.Disabled)
        .build()
    )
    assert not off.is_enabled()
    with pytest.raises(ValueError, match="at least 1 ms"):
        StateTtlConfig.new_builder(Duration.of_nanos(1)).build()


def test_tags_with_one_id_are_one_tag() -> None:
    tag = OutputTag("late", Types.STRING())
    assert tag == OutputTag("late")
    assert pickle.loads(pickle.dumps(tag)).type_info == Types.STRING()
    assert OutputTag("rows", [Types.INT()]).type_info == Types.ROW([Types.INT()])
    with pytest.raises(ValueError, match="non-empty"):
        OutputTag("")


def test_a_slot_sharing_group_has_all_needs_or_none() -> None:
    assert SlotSharingGroup.builder("plain").build().get_cpu_cores() is None
    group = SlotSharingGroup.builder("big").set_cpu_cores(2).set_task_heap_memory_mb(100).build()
    assert group.get_task_heap_memory() == MemorySize.of_mebi_bytes(100)
    with pytest.raises(ValueError, match="'half' specifies resources"):
        SlotSharingGroup.builder("half").set_managed_memory_mb(1).build()


def test_a_slot_sharing_group_says_what_its_slots_need() -> None:
    builder = SlotSharingGroup.builder("gpu").set_cpu_cores(1.5).set_task_heap_memory_mb(100)
    builder.set_task_off_heap_memory_mb(20).set_managed_memory(MemorySize.parse("1 gb"))
    group: SlotSharingGroup = builder.set_external_resource("gpu", 2).build()
    assert group.get_name() == "gpu"
    assert group.get_task_off_heap_memory() == MemorySize.of_mebi_bytes(20)
    assert group.get_managed_memory() == MemorySize.of_mebi_bytes(1024)
    assert group.get_external_resources() == {"gpu": 2}
    group.get_external_resources().clear()
    assert group.get_external_resources() == {"gpu": 2}, "a group is a value"
    plain = SlotSharingGroup.builder("plain").build()
    assert (plain.get_task_off_heap_memory(), plain.get_managed_memory()) == (None, None)
    assert plain.get_external_resources() == {}
    with pytest.raises(ValueError, match="external resource 'gpu' must be positive, not 0"):
        SlotSharingGroup.builder("none").set_external_resource("gpu", 0)


def test_storages_and_backends_are_values() -> None:
    storage = FileSystemCheckpointStorage("hdfs:///c")
    assert storage == FileSystemCheckpointStorage("hdfs:///c") != FileSystemCheckpointStorage("hdfs:///d")
    assert (storage.get_min_file_size_threshold(), storage.get_write_buffer_size()) == (20_480, 20_480)
    assert JobManagerCheckpointStorage().get_max_state_size() == 5 * 1024 * 1024
    # As in PyFlink: where savepoints go is a setting of the job.
    assert storage.get_savepoint_path() is JobManagerCheckpointStorage("/c").get_savepoint_path() is None
    with pytest.raises(ValueError, match="checkpoint_path"):
        FileSystemCheckpointStorage()
    assert HashMapStateBackend() == HashMapStateBackend() != EmbeddedRocksDBStateBackend()
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_db_storage_paths("/a", "/b")
    assert backend.get_db_storage_paths() == ["/a", "/b"]
    assert backend.is_incremental_checkpoints_enabled()


def test_job_ids_and_states() -> None:
    assert str(JobID("AB" * 16)) == "ab" * 16
    assert JobID.from_bytes(bytes(16)) == JobID("0" * 32)
    with pytest.raises(ValueError, match="32 hexadecimal"):
        JobID("xyz")
    assert str(JobStatus.RUNNING) == f"{JobStatus.RUNNING}" == "JobStatus.RUNNING"
    terminal = {status.name for status in JobStatus if status.is_globally_terminal_state()}
    assert terminal == {"FINISHED", "CANCELED", "FAILED"}
    assert JobStatus.SUSPENDED.is_terminal_state() and not JobStatus.RUNNING.is_terminal_state()


def test_restart_strategies_are_values() -> None:
    assert RestartStrategies.fixed_delay_restart(3, 10) == RestartStrategies.fixed_delay_restart(3, 10)
    assert "3" in RestartStrategies.fixed_delay_restart(3, 10).get_description()
    with pytest.raises(ValueError, match="failure_rate"):
        RestartStrategies.failure_rate_restart(0, 1, 1)


def test_schemas() -> None:
    schema = SimpleStringSchema("latin-1")
    assert schema.deserialize(schema.serialize("é")) == "é"
    with pytest.raises(LookupError):
        Encoder.simple_string_encoder("no-such-charset")
    assert RowFieldExtractorSchema(1).serialize(Row(1, b"x")) == b"x"
    with pytest.raises(TypeError, match="field 0 must hold bytes"):
        RowFieldExtractorSchema(0).serialize(Row(1))


def test_accumulators_merge() -> None:
    first, second = IntCounter(), IntCounter(5)
    first.add(2)
    first.merge(second)
    assert first.get_local_value() == 7
    mean, other = AverageAccumulator(), AverageAccumulator()
    mean.add(1)
    other.add(2)
    other.add(6)
    mean.merge(other)
    assert mean.get_local_value() == 3.0
    histogram = Histogram()
    for value in (2, 1, 2):
        histogram.add(value)
    assert histogram.get_local_value() == {1: 1, 2: 2}
    values: ListAccumulator[str] = ListAccumulator()
    values.add("a")
    values.get_local_value().append("b")
    assert values.get_local_value() == ["a"]
