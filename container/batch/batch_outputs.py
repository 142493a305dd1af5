"""The outputs of a batch task: partitions whose channels make chunks, and collected and printed rows.

Owner: the task thread; `post` and `wake` may be called from any thread. Must not run operators.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import AnyStr, Final

from yarrow.container.batch.chunk import COLLECTED, COMMITTABLES, PRINTED, EndTime, encode_time
from yarrow.container.batch.chunk_channel import ChunkChannel, Outbox
from yarrow.container.batch.commits import encode_committables
from yarrow.container.batch.folding.combining import combining_partition
from yarrow.container.batch.folding.partial_rows import partial_codec
from yarrow.container.batch.split_assignment import SplitAssignmentError
from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.network.partition import Partition
from yarrow.container.operators.base import CollectMessage, HistoryTime
from yarrow.container.sources.source_events import decode_to_coordinator
from yarrow.container.task.checkpointing.channel_origins import checking_codec_of
from yarrow.container.task.task_environment import BatchBounds, TaskServices, partition_over
from yarrow.runtime.config.options import execution, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.key_groups import key_group_range_for_operator_index
from yarrow.runtime.graph.batch.batch_plan import BatchExchange, BatchStage, ExchangeKind
from yarrow.runtime.graph.distribution import consumers_of
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex
from yarrow.runtime.rpc.messages import JOB_MASTER_SUBTASK

#: Rows and bytes that wait in all buffers of an edge together, and the least bounds of one buffer.
_BUFFERED: Final = BatchBounds(128 * 1024, 32 << 20)
_LEAST: Final = BatchBounds(16, 4096)
#: Most bytes of a chunk of committables, and characters of one of printed text: longer ones have several chunks.
_PART: Final = 1 << 20
#: The same of rows of columns: for one buffer, and for all together.
_COLUMNS: Final = 64 * 1024
_BUFFERED_COLUMNS: Final = 1 << 20
#: Longest wait in seconds: in between, the task looks whether it is cancelled, and for other shares of rate limits.
_LONGEST_WAIT: Final = 0.2


class BatchOutputs:
    """What leaves one task, as chunks in the `outbox`; also the services that its operators call."""

    def __init__(
        self, graph: JobGraph, stage: BatchStage, subtask: int, settings: Settings, directory: Path
    ) -> None:
        """`directory`: a folder of this task for chunks that do not fit into memory; made on demand."""
        self._graph = graph
        self._stage = stage
        self._subtask = subtask
        self._settings = settings
        self.outbox = Outbox(subtask, directory)
        self._mails: deque[Callable[[], None]] = deque()
        self._messages: deque[CollectMessage] = deque()
        #: Set when something for which a source may wait has changed.
        self.woken = threading.Event()

    def services(self, result_key: bytes) -> TaskServices:
        """The services of the task's environment."""
        return TaskServices(
            wake=self.woken.set,
            post=self._post,
            write_output=partial(self._write, 0),
            send_operator_event=self._take_event,
            push_collected=self._messages.append,
            result_key=result_key,
        )

    # ------------------------------------------------------------------ exchanges

    def partitions(self) -> list[Partition]:
        """The outputs, one for each edge that leaves the vertex."""
        exchanges = {exchange.edge: exchange for exchange in self._stage.outputs}
        return [
            self._partition(edge, exchanges[edge.index])
            for edge in self._graph.outputs_of(self._stage.vertex_id)
        ]

    def _partition(self, edge: JobEdge, exchange: BatchExchange) -> Partition:
        combines = exchange.combining is not None
        codec = (partial_codec if combines else checking_codec_of)(self._graph, edge)
        limit = self._settings.get(taskmanager.MAX_FRAME_SIZE).bytes
        targets = self._targets(edge, exchange)
        channels = [ChunkChannel(self.outbox, edge.index, target, codec, limit) for target in targets]
        bounds = self._bounds(len(targets))
        if self._stage.is_handed_over:
            # Spark's batches are as large as they may be, in rows or in bytes: none waits for another one.
            bounds = bounds._replace(columns=1)
        partition: Partition
        if combines:
            partition = combining_partition(self._graph, edge, channels, bounds, self._settings)
        else:
            partition = partition_over(self._graph, edge, channels, bounds)
        # Another attempt deals the same rows out to the same consumers.
        partition.seed = edge.index * 65_536 + self._subtask
        return partition

    def _targets(self, edge: JobEdge, exchange: BatchExchange) -> Sequence[int]:
        target = self._graph.vertex(edge.target)
        if exchange.kind is ExchangeKind.KEYED:
            if edge.partitioner.function is not None:
                return self._first_key_groups(target)
            return range(target.max_parallelism)
        return consumers_of(edge.partitioner.kind, self._stage.parallelism, target.parallelism, self._subtask)

    def _bounds(self, buffers: int) -> BatchBounds:
        rows = min(self._settings.get(execution.BATCH_MAX_ROWS), _BUFFERED.rows // max(1, buffers))
        size = min(self._settings.get(execution.BATCH_MAX_SIZE).bytes, _BUFFERED.bytes // max(1, buffers))
        columns = max(_LEAST.rows, min(_COLUMNS, _BUFFERED_COLUMNS // max(1, buffers)))
        return BatchBounds(max(_LEAST.rows, rows), max(_LEAST.bytes, size), columns)

    def is_full(self) -> bool:
        """Whether chunks wait to be taken: operators that make many batches of one stop here for a while."""
        return self.outbox.is_full

    def wait(self, seconds: float | None) -> None:
        """Waits until something has changed, at most so many seconds, and never long; None = no bound of its own."""
        self.woken.wait(_LONGEST_WAIT if seconds is None else min(seconds, _LONGEST_WAIT))

    # ------------------------------------------------------------------ what operators send

    def _post(self, mail: Callable[[], None]) -> None:
        self._mails.append(mail)
        self.woken.set()

    def _take_event(self, operator: str, target: int, source: int, payload: bytes) -> None:
        """Drops what a reader says to its enumerator, which ended before; an event may await an answer.

        It also drops a task's reports that it needs a share of a rate limit: the driver knows which tasks run.
        """
        if target == JOB_MASTER_SUBTASK:
            return
        if decode_to_coordinator(payload)[2][0] == "event":
            name = self._graph.vertex(self._stage.vertex_id).head.name
            raise SplitAssignmentError(
                f"the reader of '{name}' sends an event to its split enumerator (send_event_to_enumerator). Batch mode "
                "assigns all splits before readers run. Use a source whose readers only request splits, or run the job "
                "in STREAMING mode"
            )

    def name_printers(self, chain: OperatorChain) -> None:
        """Keeps the text of each printing operator apart: how they alternate depends on the polls of the source."""
        for index, operator in enumerate(chain.operators):
            if operator.prints_text:
                operator.write_text = partial(self._write, index)

    def _write(self, printer: int, text: str) -> None:
        for part in _parts(text):
            self.outbox.put(PRINTED, printer, part.count("\n"), part.encode("utf-8", "backslashreplace"))

    def put_times(self, times: Sequence[HistoryTime]) -> None:
        """Tells each partition of each consumer the event time behind the operators, at the end of history."""
        for edge in self._graph.outputs_of(self._stage.vertex_id):
            time = times[edge.source_operator]
            exchange = next(each for each in self._stage.outputs if each.edge == edge.index)
            for target in self._end_targets(edge, exchange):
                payload = encode_time(EndTime(time.watermark, time.lag))
                self.outbox.put(edge.index, target, 0, payload)

    def _end_targets(self, edge: JobEdge, exchange: BatchExchange) -> Iterable[int]:
        """One target in each partition."""
        if exchange.kind is not ExchangeKind.KEYED:
            return self._targets(edge, exchange)
        return self._first_key_groups(self._graph.vertex(edge.target))

    def _first_key_groups(self, target: JobVertex) -> Sequence[int]:
        """The first key group of each subtask."""
        return [
            key_group_range_for_operator_index(target.max_parallelism, target.parallelism, subtask).start
            for subtask in range(target.parallelism)
        ]

    def put_committables(self, chain: OperatorChain) -> None:
        """Takes what the sinks of a finished chain have prepared."""
        for index, operator in enumerate(chain.operators):
            with chain.attributed(index):
                if prepared := operator.take_committables():
                    *begin, end = _parts(encode_committables(prepared))
                    for part in begin:
                        self.outbox.put(COMMITTABLES, index, 0, part)
                    self.outbox.put(COMMITTABLES, index, len(prepared), end)

    def settle(self, chain: OperatorChain) -> None:
        """Between two steps: runs mails and upkeep, and takes the messages of collect operators.

        These wait for an answer, and get it at once.
        """
        while self._mails:
            self._mails.popleft()()
        chain.upkeep()
        if chain.awaits_results:
            chain.emit_results(0.0)
        while self._messages:
            message = self._messages.popleft()
            if message.payload:
                target = self._graph.collect_ids.index(message.collect_id)
                self.outbox.put(COLLECTED, target, message.row_count, message.payload)
            operator = chain.collecting(message.collect_id)
            assert operator is not None, "the message came from an operator of the chain"
            operator.on_credit(message.sequence, {message.stream: message.first + message.row_count})


def _parts(whole: AnyStr) -> Iterator[AnyStr]:
    """Text or bytes in parts of at most `_PART`."""
    return (whole[begin : begin + _PART] for begin in range(0, max(1, len(whole)), _PART))
