"""BatchPlan: a bounded job as stages and the exchanges between them.

Owner: none (frozen values, msgspec-encoded). A stage is a JobVertex: each of its partitions runs the vertex's
chain once. Must not know who runs the stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from yarrow.common.values.conditions import AnyCondition, comparisons_of
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.graph.batch.batch_iterations import BatchIteration
from yarrow.runtime.graph.operator_spec import ColumnScan, KeyedAggregates


class ExchangeKind(StrEnum):
    """How rows get from the partitions of one stage to those of the next."""

    #: Partition i feeds partition i: no shuffle.
    FORWARD = "FORWARD"
    #: Each chunk names the partition that reads it; its producer has dealt the rows out.
    REBALANCE = "REBALANCE"
    #: Each chunk names a key group; a partition reads a contiguous range of them.
    KEYED = "KEYED"
    #: Each partition reads all rows: there is one chunk for each, with the same content.
    BROADCAST = "BROADCAST"
    #: Partition 0 reads all rows.
    GLOBAL = "GLOBAL"


class Combining(StrEnum):
    """Which rows a KEYED exchange folds by key before they are sent."""

    #: All rows; those whose order in event time shows in results stay as they are.
    ALL = "ALL"
    #: Rows without a timestamp; others are sent as they are.
    UNTIMED = "UNTIMED"


class InputOrder(StrEnum):
    """In which order a stage takes its rows."""

    #: Splits one after the other, or the chunks of one producer: nothing is sorted.
    AS_READ = "AS_READ"
    #: By producer and position; of two inputs one after the other, broadcast ones first.
    BY_PLACE = "BY_PLACE"
    #: The keys of a key group together: by time, as far as rows have one, then by place.
    BY_TIME = "BY_TIME"
    #: The rows of a key group, or of a task, of the first input, then those of the second one.
    BY_INPUT = "BY_INPUT"
    #: Key by key; the rows of a key by time, then input, then place.
    BY_KEY = "BY_KEY"


class BatchExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One edge of the JobGraph in a plan."""

    #: `JobEdge.index`; chunks name the exchange by it.
    edge: int
    source: JobVertexID
    target: JobVertexID
    #: The input of the target's head: 0, or 1 for the second one.
    target_input: int
    kind: ExchangeKind
    #: Which rows the producers fold; None = none.
    combining: Combining | None = None
    #: Why rows are folded or not, for people; "" where there is no question.
    combining_note: str = ""


class SqlAggregation(msgspec.Struct, frozen=True, kw_only=True):
    """Aggregates over files of columns that Spark SQL computes: their rows never enter Python.

    The tasks of the stage take the results in place of splits; the head of the next stage hands them on.
    """

    #: The files and their columns.
    scan: ColumnScan
    aggregates: KeyedAggregates
    #: Only rows for which it is true are aggregated; None = all.
    condition: AnyCondition | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once: first the keys."""
        aggregated = (each.column for each in self.aggregates.aggregates if each.column is not None)
        compared = () if self.condition is None else (part.column for part in comparisons_of(self.condition))
        return tuple(dict.fromkeys((*self.aggregates.key_names, *aggregated, *compared)))


class BatchStage(msgspec.Struct, frozen=True, kw_only=True):
    """One vertex of the JobGraph: `parallelism` partitions, each of which is one task."""

    vertex_id: JobVertexID
    #: The vertex's name, for people.
    name: str
    parallelism: int
    #: Number of key groups: targets of KEYED inputs are 0 to `max_parallelism` - 1.
    max_parallelism: int
    #: Exchanges by which rows come and leave, in order of their edges.
    inputs: tuple[BatchExchange, ...]
    outputs: tuple[BatchExchange, ...]
    #: The tasks read splits of a source instead of chunks.
    is_source: bool = False
    order: InputOrder = InputOrder.BY_PLACE
    #: What Spark SQL does in place of the stage's source and the aggregates behind it.
    sql: SqlAggregation | None = None
    #: Why files of columns are read in Python all the same; "" for all other stages.
    no_sql: str = ""
    #: What the source's readers leave out, for people; "" = nothing.
    scan_note: str = ""

    @property
    def is_handed_over(self) -> bool:
        """Whether Spark SQL computes the rows in the partition of the next stage that reads them."""
        return self.sql is not None and all(each.kind is ExchangeKind.FORWARD for each in self.outputs)

    def partition_of(self, exchange: BatchExchange, target: int) -> int:
        """The partition of this stage that reads a chunk of `exchange`, one of its inputs, with that target."""
        if exchange.kind is ExchangeKind.KEYED:
            # Clients and masters, which ask for no partition, do without the module and its numpy.
            from yarrow.runtime.data.key_groups import operator_index_for_key_group

            return operator_index_for_key_group(self.max_parallelism, self.parallelism, target)
        return target


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The input is the history of a stream: state is kept, and becomes the savepoint from which the stream starts."""

    #: Epoch ms of the first record of a split that is left to the stream; None = history is all there is.
    until: int | None
    #: The folder of the savepoint.
    savepoint: str


class BatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of a job, upstream first."""

    stages: tuple[BatchStage, ...]
    #: Parts of the plan that are executed several times.
    iterations: tuple[BatchIteration, ...] = ()
    history: History | None = None

    def stage(self, vertex_id: JobVertexID) -> BatchStage:
        """The stage of that vertex; KeyError if there is none."""
        for stage in self.stages:
            if stage.vertex_id == vertex_id:
                return stage
        raise KeyError(vertex_id)

    def steps(self) -> Iterator[BatchStage | BatchIteration]:
        """Stages and whole iterations in an order in which they can be executed."""
        owners = {vertex_id: each for each in self.iterations for vertex_id in each.body}
        done: set[JobVertexID] = set()
        waiting = list(dict.fromkeys(owners.get(stage.vertex_id, stage) for stage in self.stages))
        while waiting:
            step = next(each for each in waiting if self._producers_of(each) <= done)
            waiting.remove(step)
            done |= _vertices_of(step)
            yield step

    def _producers_of(self, step: BatchStage | BatchIteration) -> set[JobVertexID]:
        """The vertices outside of a step that it reads."""
        vertices = _vertices_of(step)
        read = {exchange.source for each in vertices for exchange in self.stage(each).inputs}
        return read - vertices


def _vertices_of(step: BatchStage | BatchIteration) -> set[JobVertexID]:
    return set(step.body) if isinstance(step, BatchIteration) else {step.vertex_id}


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(BatchPlan)


def encode_batch_plan(plan: BatchPlan) -> bytes:
    """The plan as msgpack."""
    return _ENCODER.encode(plan)


def decode_batch_plan(data: bytes) -> BatchPlan:
    """Decodes a plan. Raises msgspec.ValidationError with the invalid part."""
    return _DECODER.decode(data)
