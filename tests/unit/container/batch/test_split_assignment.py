"""Splits are assigned by the source's own enumerator, before any reader runs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.container.batch.split_assignment import SplitAssignmentError, assign
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.runtime.graph.job_graph import JobGraph


@dataclass(frozen=True)
class Part(SourceSplit):
    number: int

    @property
    def split_id(self) -> str:
        return str(self.number)


class Parts(Source[int, Part]):
    """Five splits, handed out as `way` says."""

    def __init__(self, way: str) -> None:
        self.way = way

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[Part], checkpoint: Any = None
    ) -> PartsEnumerator:
        return PartsEnumerator(context, self.way)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[int, Part]:
        raise AssertionError("readers are not opened")


class PartsEnumerator(SplitEnumerator[Part]):
    def __init__(self, context: SplitEnumeratorContext[Part], way: str) -> None:
        self.context = context
        self.way = way
        self.left = [Part(number) for number in range(5)]

    def add_reader(self, subtask: int) -> None:
        if self.way == "at registration":
            for part in self.left:
                if part.number % self.context.parallelism == subtask:
                    self.context.assign_split(part, subtask)
            self.context.signal_no_more_splits(subtask)
        elif self.way == "by events":
            self.context.send_event_to_reader(subtask, "read everything")

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        if self.way == "fails":
            raise LookupError("no such folder")
        if self.way == "later":
            self.context.call_later(0.001, lambda: self.hand_out(subtask))
        elif self.way == "on request":
            self.hand_out(subtask)

    def hand_out(self, subtask: int) -> None:
        if self.left:
            self.context.assign_split(self.left.pop(0), subtask)
        else:
            self.context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Part], subtask: int) -> None:
        raise AssertionError("no reader fails")

    def snapshot_state(self, checkpoint_id: int) -> None:
        raise AssertionError("no checkpoint is taken")


def graph_of(source: Source[Any, Any]) -> JobGraph:
    env = environment()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "parts").print()
    return env.get_job_graph()


def numbers(assigned: list[list[bytes]]) -> list[list[int]]:
    return [[pickle.loads(split).number for split in splits] for splits in assigned]


@pytest.mark.parametrize("way", ["on request", "at registration"])
def test_splits_go_to_each_reader_in_turn(way: str) -> None:
    graph = graph_of(Parts(way))
    assert numbers(assign(graph, graph.vertices[0].id, 2)) == [[0, 2, 4], [1, 3]]


def test_splits_that_are_found_later_are_awaited() -> None:
    graph = graph_of(Parts("later"))
    assert sorted(chain(*numbers(assign(graph, graph.vertices[0].id, 3)))) == [0, 1, 2, 3, 4]


def test_an_enumerator_that_talks_with_its_readers_is_refused() -> None:
    graph = graph_of(Parts("by events"))
    with pytest.raises(SplitAssignmentError, match=r"'Source: parts'.*send_event_to_reader.*STREAMING"):
        assign(graph, graph.vertices[0].id, 2)


def test_a_failure_names_the_source() -> None:
    graph = graph_of(Parts("fails"))
    with pytest.raises(OperatorFailure) as raised:
        assign(graph, graph.vertices[0].id, 2)
    assert "parts" in raised.value.operator_name
    assert str(raised.value.cause) == "no such folder"


def test_an_enumerator_without_an_end_is_named() -> None:
    graph = graph_of(Parts("never"))
    with pytest.raises(SplitAssignmentError, match=r"'Source: parts'.*2 of 2 readers"):
        assign(graph, graph.vertices[0].id, 2, timeout=0.05)


def test_other_vertices_have_no_splits() -> None:
    env = environment()
    env.from_collection([1]).rebalance().map(str).rebalance().print()
    graph = env.get_job_graph()
    assert assign(graph, graph.vertices[-1].id, 2) == [[], []]
