"""Jobs with a loop whose output shows each visit of each record, and a checker of what they print."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from yarrow.common import Configuration
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.functions import (
    CoMapFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from yarrow.datastream.state import ListState, ListStateDescriptor, ValueState, ValueStateDescriptor
from yarrow.runtime.graph.job_graph import JobGraph

MAX_PARALLELISM = 16
#: Keys inside the loop, between which records wander, and keys behind it.
INNER_KEYS, OUTER_KEYS = 5, 3
#: A record, and how often it goes round after this visit.
STEP = Types.TUPLE([Types.LONG(), Types.LONG()])
#: The same, with the key inside the loop and the number of visits of that key.
VISIT = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()])


def rounds_of(record: int) -> int:
    """How often a record goes round."""
    return 8 + record % 4


def inner_key(step: Any) -> int:
    """The key of a visit: another one in each round."""
    return int((3 * step[0] + step[1]) % INNER_KEYS)


class CountVisits(KeyedProcessFunction[int, Any, Any]):
    """Counts the visits of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], value[1], ctx.get_current_key(), count


class Seen(KeyedProcessFunction[int, Any, str]):
    """Keeps all visits of a key, and puts them out each time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen: ListState[Any] = runtime_context.get_list_state(ListStateDescriptor("seen", VISIT))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        self._seen.add(value)
        yield repr((ctx.get_current_key(), [tuple(visit) for visit in self._seen]))


class FirstOrBack(CoMapFunction[Any, Any, Any]):
    """Records as they come, and feedback, which is a text."""

    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        record, left = value.split()
        return int(record), int(left)


def visited(steps: DataStream) -> DataStream:
    """The body of the loops."""
    return steps.key_by(inner_key, Types.LONG()).process(CountVisits(), VISIT).uid("visits")


def close(loop: Any, visits: DataStream) -> None:
    """Sends the records round that have rounds left."""
    again = visits.filter(lambda visit: visit[1] > 0).map(lambda visit: (visit[0], visit[1] - 1), STEP)
    loop.close_with(again)


def plain(steps: DataStream) -> DataStream:
    """A loop whose feedback has the type of its input."""
    loop = steps.iterate().uid("loop")
    visits = visited(loop)
    close(loop, visits)
    return visits


def with_other_type(steps: DataStream) -> DataStream:
    """A loop whose feedback is text."""
    loop = steps.iterate().uid("loop").with_feedback_type(Types.STRING())
    visits = visited(loop.map(FirstOrBack(), STEP))
    loop.close_with(
        visits.filter(lambda visit: visit[1] > 0).map(
            lambda visit: f"{visit[0]} {visit[1] - 1}", Types.STRING()
        )
    )
    return visits


def entered_twice(steps: DataStream) -> DataStream:
    """A loop whose body also has an input of its own: its tail may cut before its head."""
    loop = steps.filter(lambda step: step[0] % 2 == 0).iterate().uid("loop")
    visits = visited(loop.union(steps.filter(lambda step: step[0] % 2 == 1)))
    close(loop, visits)
    return visits


def one_chain(steps: DataStream) -> DataStream:
    """A loop without an exchange, whose feedback comes back to the task that sends it."""
    loop = steps.iterate().uid("loop")
    close(loop, loop.map(lambda step: (*step, 0, 0), VISIT))
    return visited(loop.map(lambda step: step, STEP))


LOOPS = {"plain": plain, "other type": with_other_type, "two entries": entered_twice, "one chain": one_chain}


@lru_cache
def loop_job(parallelism: int, form: str = "plain") -> JobGraph:
    """The graph of a job whose source a test replaces."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({}))
    env.set_parallelism(parallelism)
    env.set_max_parallelism(MAX_PARALLELISM)
    env.set_buffer_timeout(0)
    source = env.from_collection([1], Types.LONG()).uid("source").set_parallelism(1).disable_chaining()
    steps = source.rebalance().map(lambda record: (record, rounds_of(record)), STEP).uid("steps")
    visits = LOOPS[form](steps)
    visits.key_by(lambda visit: visit[0] % OUTER_KEYS, Types.LONG()).process(Seen(), Types.STRING()).uid(
        "seen"
    ).print()
    return env.get_job_graph("loop")


def check_exact(printed: Iterable[str], records: Iterable[int]) -> None:
    """Every visit of every record once, and the visits of each inner key counted without gap."""
    longest: dict[int, list[Any]] = {}
    for text in printed:
        for line in text.splitlines():
            key, visits = ast.literal_eval(line.rpartition("> ")[2])
            if len(visits) >= len(longest.get(key, [])):
                longest[key] = visits
    found = [visit for visits in longest.values() for visit in visits]
    expected = [(record, left) for record in records for left in range(rounds_of(record) + 1)]
    assert sorted((record, left) for record, left, _, _ in found) == sorted(expected)
    counts: dict[int, list[int]] = {}
    for record, left, key, count in found:
        assert key == inner_key((record, left))
        counts.setdefault(key, []).append(count)
    assert all(sorted(of_key) == list(range(1, len(of_key) + 1)) for of_key in counts.values())
