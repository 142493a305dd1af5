"""Names that PyFlink's programs import from further modules, and what they do."""

from __future__ import annotations

import pickle
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import Duration, Encoder, ExecutionConfig, RestartStrategies, Time, Types
from yarrow.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from yarrow.common.typeinfo import (
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from yarrow.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from yarrow.datastream.async_retry_strategies import (
    NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
)
from yarrow.datastream.connectors.file_system import (
    DefaultRollingPolicy,
    FileCompactStrategy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
    StreamingFileSink,
)
from yarrow.datastream.functions import AsyncRetryStrategy
from yarrow.datastream.state import StateTtlConfig
from yarrow.datastream.utils import convert_to_python_obj
from yarrow.runtime.config.restart_settings import restart_strategy_settings
from yarrow.runtime.graph.connector_spec import SinkWriterOperator
from yarrow.runtime.graph.transformations import SinkTransformation

Cleanup = StateTtlConfig.CleanupStrategies


@pytest.mark.parametrize(
    ("made", "by_name", "kind"),
    [
        (Types.SQL_DATE(), SqlTimeTypeInfo.DATE(), DateTypeInfo),
        (Types.SQL_TIME(), SqlTimeTypeInfo.TIME(), TimeTypeInfo),
        (Types.SQL_TIMESTAMP(), SqlTimeTypeInfo.TIMESTAMP(), TimestampTypeInfo),
        (Types.SQL_DATE(), LocalTimeTypeInfo.LOCAL_DATE(), DateTypeInfo),
        (Types.SQL_TIME(), LocalTimeTypeInfo.LOCAL_TIME(), TimeTypeInfo),
        (Types.SQL_TIMESTAMP(), LocalTimeTypeInfo.LOCAL_DATE_TIME(), TimestampTypeInfo),
        (Types.INSTANT(), InstantTypeInfo(), InstantTypeInfo),
        (Types.INSTANT(), BasicTypeInfo.of("INSTANT"), InstantTypeInfo),
    ],
)
def test_types_of_times_have_classes_of_their_own(
    made: TypeInformation, by_name: TypeInformation, kind: type[TypeInformation]
) -> None:
    travelled = [TypeInformation.from_spec(made.to_spec()), pickle.loads(pickle.dumps(made))]
    for found in (by_name, *travelled):
        assert found == made
        assert hash(found) == hash(made)
        assert isinstance(found, kind)


def test_an_external_type_is_the_type_itself() -> None:
    assert ExternalTypeInfo(Types.ROW([Types.LONG()])) == Types.ROW([Types.LONG()])
    with pytest.raises(TypeError, match="type of ExternalTypeInfo must be a TypeInformation"):
        ExternalTypeInfo(int)  # type: ignore[arg-type]


def test_a_collected_value_is_a_python_object_already() -> None:
    assert convert_to_python_obj(date(2013, 1, 1), Types.SQL_DATE()) == date(2013, 1, 1)
    assert convert_to_python_obj(None, Types.LONG()) is None
    with pytest.raises(TypeError, match="'1' is no value of the type Long"):
        convert_to_python_obj("1", Types.LONG())


def test_limits_of_longs() -> None:
    assert Types.LONG().accepts(MAX_LONG_VALUE) and not Types.LONG().accepts(MAX_LONG_VALUE + 1)
    assert Types.LONG().accepts(MIN_LONG_VALUE) and not Types.LONG().accepts(MIN_LONG_VALUE - 1)


def test_an_unknown_parallelism_leaves_it_as_it_is() -> None:
    config = ExecutionConfig().set_parallelism(3).set_parallelism(ExecutionConfig.PARALLELISM_UNKNOWN)
    assert config.get_parallelism() == 3
    with pytest.raises(ValueError, match="at least 1, not -3"):
        config.set_parallelism(-3)


def test_restart_strategies_tell_their_settings() -> None:
    fixed = RestartStrategies.fixed_delay_restart(3, timedelta(seconds=2))
    assert fixed == RestartStrategies.fixed_delay_restart(3, 2000)
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=2)
    assert restart_strategy_settings(fixed)["restart-strategy.fixed-delay.delay"] == "2000 ms"
    rate = RestartStrategies.failure_rate_restart(5, 60_000, timedelta(milliseconds=10))
    assert rate.get_max_failure_rate() == 5
    assert rate.get_failure_interval() == timedelta(minutes=1)
    assert rate.get_delay_between_attempts_interval() == timedelta(milliseconds=10)
    assert restart_strategy_settings(rate)["restart-strategy.failure-rate.delay"] == "10 ms"
    with pytest.raises(TypeError, match="takes milliseconds or a timedelta, not 'soon'"):
        RestartStrategies.fixed_delay_restart(3, "soon")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="delay_between_attempts_interval of a restart strategy must be at least 0"
    ):
        RestartStrategies.fixed_delay_restart(3, timedelta(seconds=-1))


def test_retry_strategies() -> None:
    fixed = FixedDelayRetryStrategy(2, 50, empty_result_predicate, has_exception_predicate)
    assert AsyncRetryStrategy.fixed_delay(2, 50, empty_result_predicate, has_exception_predicate) == fixed
    assert [fixed.can_retry(attempt) for attempt in (2, 3)] == [True, False]
    on_result = fixed.get_retry_predicate().result_predicate()
    assert on_result is not None and on_result([]) and not on_result([1])
    growing = ExponentialBackoffDelayRetryStrategy(9, 100, 1000, 2.0, None, None)
    assert [growing.get_backoff_time_millis(n) for n in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
    assert growing.get_retry_predicate().exception_predicate() is None
    assert AsyncRetryStrategy.no_restart() is NO_RETRY_STRATEGY
    assert NO_RETRY_STRATEGY.get_backoff_time_millis(1) == -1
    with pytest.raises(ValueError, match="max_attempts of a retry strategy must be above 0, not 0"):
        FixedDelayRetryStrategy(0, 50, None, None)


def test_predicates_of_retries() -> None:
    assert empty_result_predicate(None)
    assert has_exception_predicate(ValueError()) and not has_exception_predicate(None)
    assert exception_type_predicate(KeyError(), LookupError)
    assert not exception_type_predicate(None, LookupError)


def test_clean_up_strategies_tell_their_settings() -> None:
    default = StateTtlConfig.new_builder(Time.days(1)).build().get_cleanup_strategies()
    assert default.is_cleanup_in_background() and not default.in_full_snapshot()
    assert default.get_incremental_cleanup_strategy() == Cleanup.IncrementalCleanupStrategy(5, False)
    compact = default.get_rocksdb_compact_filter_cleanup_strategy()
    assert compact is not None and compact.get_query_time_after_num_entries() == 1000
    assert compact.get_periodic_compaction_time() == Duration.of_days(30)
    config = (
        StateTtlConfig.new_builder(Time.days(1))
        .disable_cleanup_in_background()
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .build()
    )
    asked_for = config.get_cleanup_strategies()
    incremental = asked_for.get_incremental_cleanup_strategy()
    assert incremental is not None and incremental.get_cleanup_size() == 10
    assert incremental.run_cleanup_for_every_record()
    assert asked_for.get_rocksdb_compact_filter_cleanup_strategy() is None
    assert asked_for.in_full_snapshot() and not asked_for.is_cleanup_in_background()
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))


def test_rolling_policies_have_classes_of_their_own() -> None:
    assert isinstance(RollingPolicy.default_rolling_policy(), DefaultRollingPolicy)
    assert RollingPolicy.default_rolling_policy(part_size=7).part_size == 7
    assert isinstance(RollingPolicy.on_checkpoint_rolling_policy(), OnCheckpointRollingPolicy)
    assert RollingPolicy.on_checkpoint_rolling_policy().on_checkpoint


def test_a_streaming_file_sink_is_a_file_sink(tmp_path: Path) -> None:
    env = environment()
    sink = (
        StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1))
        .build()
    )
    env.from_collection([1]).add_sink(sink)
    (root,) = env.graph_builder.roots
    assert isinstance(root, SinkTransformation)
    assert isinstance(root.spec, SinkWriterOperator)


def test_a_compaction_strategy_says_when() -> None:
    strategy = FileCompactStrategy.builder().set_size_threshold(1024).set_num_compact_threads(2).build()
    assert (strategy.size_threshold, strategy.num_compact_threads) == (1024, 2)
    with pytest.raises(ValueError, match="nothing says when to compact"):
        FileCompactStrategy.builder().build()
