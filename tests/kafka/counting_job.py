"""A job that counts a topic's words by key into files: every count of every word must be there, each once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.support.fault_runs import SETTINGS
from yarrow.common.job_status import JobStatus
from yarrow.common.serialization import Encoder, SimpleStringSchema
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.dynamic_kafka import DynamicKafkaSourceBuilder
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import RollingPolicy
from yarrow.datastream.connectors.kafka import KafkaSource, KafkaSourceBuilder
from yarrow.datastream.functions import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.runtime.common.ids import JobID
from yarrow.testing.fault_plan import FileFaultPlanner, install

#: The last row of each partition.
END = "end"
#: Seconds between portions: several checkpoints have rows.
PACE = 0.02
WORDS = [f"word{number}" for number in range(7)]


class UpToEnd(SimpleStringSchema):
    """Strings, up to the one that says that the partition ends."""

    def is_end_of_stream(self, next_element: str) -> bool:
        return next_element == END


class Count(KeyedProcessFunction[str, str, str]):
    """Emits a word with how often it has come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield f"{value} {count}"


class Words:
    """Writes words into a topic, and remembers which."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": servers})
        self.topic = topic
        self.partitions = partitions
        self.sent: Counter[str] = Counter()
        self._number = 0

    def send(self, number: int) -> None:
        """Sends words, in turn to each partition, and waits until the broker has them."""
        for _ in range(number):
            word = WORDS[self._number % len(WORDS)]
            self._producer.produce(self.topic, word, partition=self._number % self.partitions)
            self.sent[word] += 1
            self._number += 1
        assert self._producer.flush(60) == 0

    def end(self) -> None:
        """Ends each partition."""
        for partition in range(self.partitions):
            self._producer.produce(self.topic, END, partition=partition)
        assert self._producer.flush(60) == 0

    def counts(self) -> Counter[str]:
        """Every row that the job must write, once."""
        return Counter(
            f"{word} {count}" for word, number in self.sent.items() for count in range(1, number + 1)
        )


class Run:
    """A counting job under way."""

    def __init__(self, cluster: MiniCluster, client: LocalJobClient) -> None:
        self._cluster = cluster
        self.client = client

    def completed(self) -> int:
        """Number of completed checkpoints."""
        job_id = JobID(str(self.client.get_job_id()))
        request = self._cluster.cluster.dispatcher.request_checkpoint_statistics(job_id)
        return LoopThread.shared().call(request).counts.completed

    def until_completed(self, more: int = 2) -> None:
        """Waits for checkpoints that begin after this call."""
        wanted = self.completed() + more
        wait_until(lambda: self.completed() >= wanted)

    def restarts(self) -> int:
        """How often tasks have been started again."""
        return self.client.get_job_details().result().restarts

    def ends(self) -> None:
        """Waits for the end of the job."""
        self.client.get_job_execution_result().result(DEADLINE)
        assert self.client.get_job_status().result() is JobStatus.FINISHED


def send_until(words: Words, condition: Callable[[], bool]) -> None:
    """Sends words while a condition does not hold, and some behind it."""
    pause = threading.Event()

    def holds() -> bool:
        words.send(11)
        pause.wait(PACE)
        return condition()

    wait_until(holds)
    words.send(100)


def run_until_fired(
    cluster: MiniCluster, env: StreamExecutionEnvironment, words: Words, planner: FileFaultPlanner
) -> Run:
    """Runs the counting job while a plan of faults holds, and sends words until its fault has come."""
    install(planner)
    try:
        run = Run(cluster, cluster.submit(env.get_job_graph("counts")))
        send_until(words, lambda: planner.has_fired)
    finally:
        install(None)
    return run


def source_of(servers: str, topic: str) -> KafkaSourceBuilder:
    """A source of a topic up to the ends of its partitions."""
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
    builder.set_value_only_deserializer(UpToEnd())
    return builder.set_property("partition.discovery.interval.ms", -1)


def counting(
    cluster: MiniCluster,
    folder: Path,
    builder: KafkaSourceBuilder | DynamicKafkaSourceBuilder,
    settings: Mapping[str, str] | None = None,
    sink: Sink[Any] | None = None,
) -> StreamExecutionEnvironment:
    """The program: topic -> keyed count -> a sink, by default files of `folder`/output."""
    options = SETTINGS | {"execution.checkpointing.dir": str(folder / "checkpoints")} | dict(settings or {})
    env = cluster.get_execution_environment(options)
    source = builder.build()
    words = env.from_source(source, WatermarkStrategy.no_watermarks(), "words").uid("words")
    counts = words.key_by(lambda word: word, Types.STRING()).process(Count(), Types.STRING()).uid("counts")
    files = (
        FileSink.for_row_format(str(folder / "output"), Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    counts.sink_to(files if sink is None else sink).uid("files")
    return env


def written(folder: Path) -> Counter[str]:
    """The rows of all finished files; no other file may lie there."""
    rows: Counter[str] = Counter()
    for file in (folder / "output").rglob("*"):
        if file.is_file():
            assert not file.name.startswith((".", "_")), f"left over: {file}"
            rows.update(file.read_text("utf-8").splitlines())
    return rows
