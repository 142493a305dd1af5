"""A disk that takes nothing more, below the database of a task in a worker process of its own: the task fails by name.

The limit on the size of a file stands in for the full disk: the database's writes fail in the operating system.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterable
from typing import Any

from tests.support.checkpoint_harness import CheckpointHarness
from yarrow.common import Configuration
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.functions import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState

#: The longest file that the worker may write from then on.
ROOM = 64 * 1024


class Remembering(KeyedProcessFunction[int, int, str]):
    """Keeps a text a key, which no compression makes smaller; the disk of its process is full as soon as it opens."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._text: ValueState[str] = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        self._text.update(hashlib.sha512(str(value).encode()).hexdigest())
        yield from ()


def remembering() -> JobGraph:
    settings = {
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.memory.managed": "false",
        "state.backend.rocksdb.writebuffer.size": "128 kb",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(1)
    numbers: Any = env.from_source(
        NumberSequenceSource(0, 10_000_000), WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.key_by(lambda number: number, Types.LONG()).process(Remembering(), Types.STRING()).name(
        "remembering"
    ).print()
    return env.get_job_graph("remembering")


def test_the_task_fails_naming_operator_state_and_path() -> None:
    with CheckpointHarness(1, processes=True) as workers:
        workers.start(remembering())
        workers.until(lambda: ExecutionState.FAILED in workers.states.values())
        (cause,) = (cause for cause in workers.causes.values() if "RocksDB" in cause.exception_name)
        assert "'remembering'" in cause.message and "state 'text'" in cause.message
        assert workers._folder.name in cause.message and "File too large" in cause.message
        workers.cancel_and_wait()
    workers.close()
