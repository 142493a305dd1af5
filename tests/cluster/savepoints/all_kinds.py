"""A job with every kind of state, whose output does not depend on where it was stopped nor at which parallelism it ran.

A savepoint of it is kept in tests/format: what is stored here by name (uids, states, types, classes) never changes.
Rows come from StepSource, which lets so many of each split pass as the file `limit` says, and tells when it stands
there.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.cluster.embedded.waiting import wait_until
from tests.support.fault_jobs import (
    INTERVAL,
    RULE_COUNT,
    RULES,
    AsRule,
    RowTimestamps,
    Ruling,
)
from yarrow.common import Duration, Row, Types, WatermarkStrategy
from yarrow.datastream import (
    AggregateFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator, unassigned_or
from yarrow.datastream.functions.timers import TimeDomain
from yarrow.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.runtime.common import fault_points
from yarrow.runtime.graph.states import ExecutionState
from yarrow.testing.fault_plan import RECORD_POINT
from yarrow.testing.gated_source import GatedSplit, Input, key_of, row_of
from yarrow.testing.transactional_files import TransactionalFiles

SPLITS, ROWS, KEYS, RULE_ROWS = 4, 60, 9, 14
#: Behind all rows: the timer that tells of a key's totals.
END = 10_000_000
TTL = StateTtlConfig.new_builder(Duration.of_days(36_500)).build()

# ---------------------------------------------------------------------- source


class StepSource(Source[Any, GatedSplit]):
    """Numbered rows that wait for leave."""

    def __init__(self, tag: str, folder: str, splits: int, rows: int) -> None:
        self.tag, self.folder, self.splits, self.rows = tag, folder, splits, rows

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[GatedSplit], checkpoint: Any = None
    ) -> SplitEnumerator[GatedSplit]:
        fresh = [GatedSplit(number, 0, self.rows) for number in range(self.splits)]
        return OnRequestEnumerator(context, unassigned_or(checkpoint, fresh))

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, GatedSplit]:
        return _Reader(self, context)


class _Reader(SourceReader[Any, GatedSplit]):
    def __init__(self, source: StepSource, context: SourceReaderContext) -> None:
        self._source, self._context = source, context
        self._splits: list[GatedSplit] = []
        self._no_more = False
        self._told: set[tuple[int, int]] = set()

    def start(self) -> None:
        self._context.request_split()

    def add_splits(self, splits: Sequence[GatedSplit]) -> None:
        self._splits.extend(splits)
        self._context.request_split()

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        limit = int(Path(self._source.folder, "limit").read_text())
        for split in self._splits:
            end = min(limit, split.end)
            if split.position < end:
                stop = min(split.position + 5, end)
                self._splits[self._splits.index(split)] = replace(split, position=stop)
                tag = self._source.tag
                rows = [row_of(tag, split.number, i, KEYS) for i in range(split.position, stop)]
                return SourceRecords(rows, [row[1] for row in rows], split.split_id)
            self._tell(split, limit)
        # Nobody ends before all may: a task that ends while a savepoint is taken has it fail.
        if limit >= ROWS and self._no_more and all(split.position == split.end for split in self._splits):
            return None
        return NothingAvailable(0.01)

    def _tell(self, split: GatedSplit, limit: int) -> None:
        if (split.number, limit) not in self._told:
            self._told.add((split.number, limit))
            mark_of(self._source.folder, self._source.tag, split.number, limit).touch()

    def snapshot_state(self, checkpoint_id: int) -> list[GatedSplit]:
        return list(self._splits)


def mark_of(folder: str | Path, tag: str, split: int, limit: int) -> Path:
    """The file that tells that a split stands at a limit."""
    return Path(folder, f"at-{tag}-{split}-{limit}")


# ---------------------------------------------------------------------- functions


@dataclass(frozen=True)
class Best:
    """A state of no declared type."""

    identity: str
    value: int


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return (a[0] + b[0], a[1] + b[1])


def with_ttl(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(TTL)
    return descriptor


COUNT: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())
IDENTITIES: ListStateDescriptor[str] = ListStateDescriptor("identities", Types.STRING())
BY_SPLIT: MapStateDescriptor[str, int] = MapStateDescriptor("by split", Types.STRING(), Types.LONG())
SUM: ReducingStateDescriptor[int] = ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
MEAN: AggregatingStateDescriptor[Any, Any, Any] = AggregatingStateDescriptor(
    "mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()])
)
RECENT: ValueStateDescriptor[int] = with_ttl(ValueStateDescriptor("recent", Types.LONG()))
RECENT_BY_SPLIT: MapStateDescriptor[str, int] = with_ttl(
    MapStateDescriptor("recent by split", Types.STRING(), Types.LONG())
)
RECENT_IDENTITIES: ListStateDescriptor[str] = with_ttl(
    ListStateDescriptor("recent identities", Types.STRING())
)
BEST: ValueStateDescriptor[Best] = ValueStateDescriptor("best")
TOTAL: ValueStateDescriptor[Row] = ValueStateDescriptor(
    "total", Types.ROW_NAMED(["rows", "value"], [Types.LONG(), Types.LONG()])
)
INTERVALS: MapStateDescriptor[int, int] = MapStateDescriptor("intervals", Types.LONG(), Types.LONG())


class Kinds(KeyedProcessFunction[str, Input, Any]):
    """Every kind of keyed state and timer; tells of intervals when they are over and of totals at the end."""

    def __init__(self, folder: str, due: int) -> None:
        self._folder, self._due = folder, due

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.identities = runtime_context.get_list_state(IDENTITIES)
        self.by_split = runtime_context.get_map_state(BY_SPLIT)
        self.sum = runtime_context.get_reducing_state(SUM)
        self.mean = runtime_context.get_aggregating_state(MEAN)
        self.recent = runtime_context.get_state(RECENT)
        self.recent_by_split = runtime_context.get_map_state(RECENT_BY_SPLIT)
        self.recent_identities = runtime_context.get_list_state(RECENT_IDENTITIES)
        self.best = runtime_context.get_state(BEST)
        self.total = runtime_context.get_state(TOTAL)
        self.intervals = runtime_context.get_map_state(INTERVALS)

    def process_element(self, value: Input, ctx: KeyedProcessFunction.Context) -> None:
        _, timestamp, identity, number = value
        count = self.count.value() or 0
        if not count:
            ctx.timer_service().register_event_time_timer(END)
            ctx.timer_service().register_processing_time_timer(self._due)
        self.count.update(count + 1)
        self.identities.add(identity)
        split = identity.partition(":")[0]
        self.by_split.put(split, (self.by_split.get(split) or 0) + 1)
        self.sum.add(number)
        self.mean.add(number)
        self.recent.update((self.recent.value() or 0) + 1)
        self.recent_by_split.put(split, number)
        self.recent_identities.add(identity)
        best = self.best.value()
        if best is None or (best.value, best.identity) < (number, identity):
            self.best.update(Best(identity, number))
        total = self.total.value() or Row(rows=0, value=0)
        self.total.update(Row(rows=total["rows"] + 1, value=total["value"] + number))
        end = timestamp // INTERVAL * INTERVAL + INTERVAL
        self.intervals.put(end, (self.intervals.get(end) or 0) + number)
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        key = ctx.get_current_key()
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            Path(self._folder, f"fired-{key}").touch()
            yield (key, "fired")
        elif timestamp < END:
            yield (key, "interval", timestamp, self.intervals.get(timestamp))
            self.intervals.remove(timestamp)
        else:
            best, total = self.best.value(), self.total.value()
            assert best is not None and total is not None
            yield (
                key,
                "total",
                self.count.value(),
                sorted(self.identities.get()),
                sorted(self.by_split.items()),
                self.sum.get(),
                self.mean.get(),
                self.recent.value(),
                sorted(self.recent_by_split.keys()),
                sorted(self.recent_identities.get()),
                (best.identity, best.value),
                (total["rows"], total["value"]),
            )


class Lists(MapFunction[Input, Input], CheckpointedFunction):
    """Keeps the identity of each row in an operator list, and in a union list of which subtasks share the elements."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = runtime_context

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._list = store.get_list_state(ListStateDescriptor("seen", Types.STRING()))
        self._union = store.get_union_list_state(ListStateDescriptor("all seen", Types.STRING()))
        self._restored: list[str] | None = list(self._union.get())

    def _own(self) -> None:
        """Of a restored union list each subtask goes on with its share."""
        if self._restored is not None:
            count, own = (
                self._context.get_number_of_parallel_subtasks(),
                self._context.get_index_of_this_subtask(),
            )
            shared = [each for place, each in enumerate(sorted(self._restored)) if place % count == own]
            self._union.update(shared)
            self._restored = None

    def map(self, value: Input) -> Input:
        fault_points.reach(RECORD_POINT)
        self._own()
        self._list.add(value[2])
        self._union.add(value[2])
        return value

    def snapshot_state(self, context: Any) -> None:
        self._own()


# ---------------------------------------------------------------------- the job and what must come of it


def build(
    env: StreamExecutionEnvironment, folder: Path, *, due: int, sink_folder: Path | None = None
) -> None:
    """The job in `env`; gates in `folder`, processing-time timers at `due` (epoch ms)."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(RowTimestamps())
    rows = env.from_source(StepSource("l", str(folder), SPLITS, ROWS), strategy, "rows").uid("rows")
    rules = env.from_source(StepSource("q", str(folder), 1, RULE_ROWS), strategy, "rule rows").uid(
        "rule rows"
    )
    seen = rows.map(Lists()).uid("lists")
    kinds = seen.key_by(key_of, Types.STRING()).process(Kinds(str(folder), due)).uid("kinds")
    broadcast = rules.map(AsRule()).uid("as rule").broadcast(RULES)
    ruled = seen.key_by(key_of, Types.STRING()).connect(broadcast).process(Ruling()).uid("rules")
    sink = TransactionalFiles(str(sink_folder or folder / "sink"))
    kinds.union(ruled).sink_to(sink).uid("sink")


def allow(folder: Path, limit: int) -> None:
    """So many rows of each split may pass."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "limit.new"
    new.write_text(str(limit))
    os.replace(new, folder / "limit")


def wait_at(folder: Path, limit: int, *, has_rules: bool = True) -> None:
    """Until every split stands at the limit; `has_rules`: also that of the rules."""
    marks = [mark_of(folder, "l", split, limit) for split in range(SPLITS)]
    marks += [mark_of(folder, "q", 0, limit)] if has_rules else []
    wait_until(
        lambda: all(mark.exists() for mark in marks),
        lambda: f"not there: {[mark.name for mark in marks if not mark.exists()]}",
    )


def is_running(client: LocalJobClient) -> bool:
    """Whether all of its tasks run, or have ended."""
    details = client.get_job_details().result()
    states = [subtask.state for vertex in details.vertices for subtask in vertex.subtasks]
    return all(state in (ExecutionState.RUNNING, ExecutionState.FINISHED) for state in states)


def rows_until(limit: int) -> list[Input]:
    """The rows that have passed at a limit."""
    return [row_of("l", s, i, KEYS) for s in range(SPLITS) for i in range(min(limit, ROWS))]


def by_key(limit: int) -> dict[str, list[Input]]:
    """The same by key."""
    found: dict[str, list[Input]] = defaultdict(list)
    for row in rows_until(limit):
        found[row[0]].append(row)
    return dict(found)


def best_of(rows: list[Input]) -> tuple[str, int]:
    """The row with the largest value, of several the one with the last identity."""
    row = max(rows, key=lambda each: (each[3], each[2]))
    return row[2], row[3]


def splits_of(rows: list[Input]) -> Counter[str]:
    """Rows by split."""
    return Counter(row[2].partition(":")[0] for row in rows)


def expected_output(*, fired: bool) -> list[Any]:
    """Everything that the job puts out, sorted; `fired`: processing-time timers too."""
    found: list[Any] = []
    for key, rows in by_key(ROWS).items():
        sums: dict[int, int] = defaultdict(int)
        for _, timestamp, _, value in rows:
            sums[timestamp // INTERVAL * INTERVAL + INTERVAL] += value
        found += [(key, "interval", end, total) for end, total in sums.items()]
        identities, splits = sorted(row[2] for row in rows), splits_of(rows)
        total = sum(row[3] for row in rows)
        count = len(rows)
        found.append(
            (
                key, "total", count, identities, sorted(splits.items()), total, total / count, count,
                sorted(splits), identities, best_of(rows), (count, total),
            )
        )  # fmt: skip
        if fired:
            found.append((key, "fired"))
        found += [(key, identity, value % RULE_COUNT * 100) for _, _, identity, value in rows]
    return sorted(found, key=repr)
