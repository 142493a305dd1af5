"""JobGraphs become stages and exchanges."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.datastream import DataStream
from yarrow.runtime.graph.batch.batch_plan import (
    BatchExchange,
    BatchStage,
    ExchangeKind,
    decode_batch_plan,
    encode_batch_plan,
)
from yarrow.runtime.graph.batch.batch_planner import plan


def test_stages_are_the_vertices_upstream_first() -> None:
    env = environment()
    words = env.from_collection(["a", "b"]).map(lambda word: (word, 1)).name("pairs")
    words.key_by(lambda pair: pair[0]).sum(1).print()
    graph = env.get_job_graph()
    stages = plan(graph).stages
    assert [stage.vertex_id for stage in stages] == [vertex.id for vertex in graph.vertices]
    assert [stage.is_source for stage in stages] == [True] + [False] * (len(stages) - 1)
    assert [stage.parallelism for stage in stages] == [vertex.parallelism for vertex in graph.vertices]
    assert all(first.outputs == second.inputs for first, second in pairwise(stages))
    assert stages[-1].inputs[0].kind is ExchangeKind.KEYED


@pytest.mark.parametrize(
    ("distribution", "kind"),
    [
        ("rebalance", ExchangeKind.REBALANCE),
        ("shuffle", ExchangeKind.REBALANCE),
        ("broadcast", ExchangeKind.BROADCAST),
        ("global_", ExchangeKind.GLOBAL),
        ("forward", ExchangeKind.FORWARD),
        ("rescale", ExchangeKind.FORWARD),
    ],
)
def test_exchanges_follow_partitioners(distribution: str, kind: ExchangeKind) -> None:
    env = environment()
    rows: DataStream = env.from_collection([1]).rebalance().map(str).disable_chaining()
    getattr(rows, distribution)().map(len).disable_chaining().print()
    stages = plan(env.get_job_graph()).stages
    assert stages[2].inputs[0].kind is kind


def test_unequal_stages_deal_rows_out() -> None:
    env = environment()
    env.from_collection([1]).rebalance().map(str).rescale().map(len).set_parallelism(4).print()
    kinds = [exchange.kind for stage in plan(env.get_job_graph()).stages for exchange in stage.outputs]
    assert ExchangeKind.FORWARD not in kinds


def test_plans_travel() -> None:
    env = environment()
    env.from_collection([1]).key_by(lambda value: value).map(str).print()
    found = plan(env.get_job_graph())
    assert decode_batch_plan(encode_batch_plan(found)) == found
    assert found.stage(found.stages[-1].vertex_id) is found.stages[-1]
    with pytest.raises(KeyError):
        found.stage("none")  # type: ignore[arg-type]


def test_key_groups_belong_to_partitions_in_ranges() -> None:
    exchange: dict[str, Any] = dict(edge=0, source="a", target="b", target_input=0)
    keyed = BatchExchange(kind=ExchangeKind.KEYED, **exchange)
    other = BatchExchange(kind=ExchangeKind.REBALANCE, **exchange)
    stage = BatchStage(
        vertex_id="b",  # type: ignore[arg-type]
        name="b",
        parallelism=3,
        max_parallelism=128,
        inputs=(keyed, other),
        outputs=(),
    )
    partitions = [stage.partition_of(keyed, group) for group in range(128)]
    assert partitions == sorted(partitions)
    assert set(partitions) == {0, 1, 2}
    assert stage.partition_of(other, 2) == 2
