"""Programs that BATCH refuses, by operator and remedy, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import BroadcastProcessFunction, CoMapFunction
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import SourceFunction
from yarrow.datastream.state import MapStateDescriptor
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.graph.batch.batch_rules import BatchRefusedError, check, is_bounded
from yarrow.runtime.graph.states import BatchRunner


class Both(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


def test_a_source_without_end_is_named() -> None:
    env = environment()
    env.from_collection([1]).print()
    env.socket_text_stream("localhost", 9).name("lines").print()
    graph = env.get_job_graph()
    assert not is_bounded(graph)
    with pytest.raises(BatchRefusedError, match=r"refuses operator 'Source: .*'.*BOUNDED.*STREAMING"):
        check(graph)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spark.master": "yarn-client"}, r"spark\.master.*'yarn-client'.*Expected local\[n\].* or yarn"),
        ({"spark.submit.deployMode": "cluster"}, "spark.submit.deployMode.*the engine sets it to 'client'"),
        (
            {"spark.master": "yarn", "spark.yarn.unmanagedAM.enabled": "true"},
            "unmanagedAM.enabled: 'true': the engine sets it to 'false'. Expected 'false' or no such key",
        ),
    ],
)
def test_keys_of_spark_are_refused_when_the_graph_is_built(settings: dict[str, str], message: str) -> None:
    env = environment(2, {"execution.runtime-mode": "BATCH", **settings})
    env.from_collection([1]).print()
    with pytest.raises(InvalidOptionValue, match=message):
        env.get_job_graph()


def test_keys_for_yarn_do_not_count_for_another_master_nor_without_spark() -> None:
    env = environment(2, {"execution.runtime-mode": "BATCH", "spark.yarn.unmanagedAM.enabled": "true"})
    env.from_collection([1]).print()
    assert env.get_job_graph().batch_runner is BatchRunner.SPARK
    env = environment(2, {"execution.runtime-mode": "AUTOMATIC", "spark.master": "yarn-client"})
    env.from_collection([1]).print()
    assert env.get_job_graph().batch_runner is BatchRunner.LOCAL


class Endless(SourceFunction[int]):
    def run(self, ctx: Any) -> None:
        ctx.collect(1)

    def cancel(self) -> None:
        return None


def test_legacy_sources_do_not_say_that_they_end() -> None:
    env = environment()
    env.add_source(Endless(), "endless").print()
    with pytest.raises(BatchRefusedError, match=r"'Source: endless'"):
        check(env.get_job_graph())


@pytest.mark.parametrize("keyed_first", [True, False])
def test_one_keyed_beside_one_unkeyed_input_is_refused(keyed_first: bool) -> None:
    env = environment()
    keyed: Any = env.from_collection([1]).key_by(lambda value: value)
    other = env.from_collection([2]).rebalance()
    first, second = (keyed, other) if keyed_first else (other, keyed)
    first.connect(second).map(Both()).name("both").print()
    with pytest.raises(BatchRefusedError, match=r"operator 'both'.*key_by on both.*broadcast") as raised:
        check(env.get_job_graph())
    assert raised.value.operator == "both"


class Reads(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value


def test_bounded_programs_pass() -> None:
    env = environment()
    numbers = env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers")
    keyed = numbers.key_by(lambda value: value)
    keyed.connect(env.from_collection([1]).key_by(lambda value: value)).map(Both()).print()
    numbers.rebalance().connect(env.from_collection([1]).shuffle()).map(Both()).print()
    rules = env.from_collection([1]).broadcast(MapStateDescriptor("rules", Types.INT(), Types.INT()))
    numbers.connect(rules).process(Reads()).print()
    keyed.reduce(lambda one, two: one + two).union(numbers).print()
    graph = env.get_job_graph()
    assert is_bounded(graph)
    check(graph)
