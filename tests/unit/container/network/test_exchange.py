"""Two workers exchange rows under random batch sizes and small credit: every partitioner keeps its promise."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment

#: Hand every few rows on at once, with room for little: all credit paths are taken.
TIGHT = {
    "execution.batch.max-rows": "7",
    "taskmanager.network.channel.credit-size": "64 kb",
    "taskmanager.network.channel.credit-batches": "2",
}
ROWS = 400


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerHarness]:
    with WorkerHarness(2, processes=False, configuration=TIGHT) as harness:
        yield harness


class Stamp(MapFunction[Any, Any]):
    """Adds the subtask to a row."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return value, self.subtask


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


def collect(workers: WorkerHarness, env: StreamExecutionEnvironment, stream: Any) -> list[Any]:
    """Runs and gives the printed values, in any order."""
    stream.map(lambda value: pickle.dumps(value).hex()).print()
    workers.output.clear()
    workers.run(env.get_job_graph("exchange"))
    return [pickle.loads(bytes.fromhex(line.partition("> ")[2])) for line in workers.output]


def routed(workers: WorkerHarness, repartition: Any) -> dict[int, list[tuple[int, int]]]:
    """Rows by receiving subtask."""
    env = environment()
    source = env.from_sequence(0, ROWS - 1).map(Stamp())
    found: dict[int, list[Any]] = defaultdict(list)
    for (value, sender), receiver in collect(workers, env, repartition(source).map(Stamp())):
        found[receiver].append((value, sender))
    return found


def values(found: dict[int, list[tuple[int, int]]]) -> list[int]:
    return sorted(value for rows in found.values() for value, _ in rows)


def test_forward_stays_local(workers: WorkerHarness) -> None:
    found = routed(workers, lambda s: s.forward())
    assert values(found) == list(range(ROWS))
    assert all(sender == receiver for receiver, rows in found.items() for _, sender in rows)


def test_rebalance_is_balanced_for_each_sender(workers: WorkerHarness) -> None:
    found = routed(workers, lambda s: s.rebalance())
    assert values(found) == list(range(ROWS))
    counts = Counter((sender, receiver) for receiver, rows in found.items() for _, sender in rows)
    for sender in (0, 1):
        assert abs(counts[sender, 0] - counts[sender, 1]) <= 1


def test_rescale_loses_nothing(workers: WorkerHarness) -> None:
    assert values(routed(workers, lambda s: s.rescale())) == list(range(ROWS))


def test_shuffle_reaches_everybody(workers: WorkerHarness) -> None:
    found = routed(workers, lambda s: s.shuffle())
    assert values(found) == list(range(ROWS))
    assert min(len(rows) for rows in found.values()) > ROWS // 4


def test_broadcast_reaches_everybody_once(workers: WorkerHarness) -> None:
    found = routed(workers, lambda s: s.broadcast())
    assert [sorted(value for value, _ in found[receiver]) for receiver in (0, 1)] == [list(range(ROWS))] * 2


def test_global_goes_to_the_first(workers: WorkerHarness) -> None:
    found = routed(workers, lambda s: s.global_())
    assert sorted(found) == [0]
    assert values(found) == list(range(ROWS))


def test_key_by_gives_a_key_to_one_subtask(workers: WorkerHarness) -> None:
    found = routed(workers, lambda s: s.key_by(lambda row: row[0] % 37))
    assert values(found) == list(range(ROWS))
    keys = [{value % 37 for value, _ in found[receiver]} for receiver in (0, 1)]
    assert keys[0] and keys[1] and not keys[0] & keys[1]


def test_custom_partitioner_decides(workers: WorkerHarness) -> None:
    found = routed(workers, lambda s: s.partition_custom(lambda key, n: (key // 10) % n, lambda row: row[0]))
    assert values(found) == list(range(ROWS))
    assert all((value // 10) % 2 == receiver for receiver, rows in found.items() for value, _ in rows)


def test_custom_partitioner_out_of_range_names_the_key(workers: WorkerHarness) -> None:
    with pytest.raises(JobFailedInHarness) as failed:
        routed(
            workers, lambda s: s.partition_custom(lambda key, n: n if key == 77 else 0, lambda row: row[0])
        )
    assert failed.value.cause.exception_name.endswith("InvalidPartitionError")
    assert "gave 2 for the key 77" in failed.value.cause.message


@pytest.mark.parametrize("chunk", [1, 3, 5000])
def test_order_of_one_sender_and_receiver_is_kept(workers: WorkerHarness, chunk: int) -> None:
    env = environment()
    stream = (
        env.from_collection(list(range(ROWS)))
        .flat_map(lambda v: [v] * (chunk if v == 5 else 1))
        .set_parallelism(1)
    )
    rows = collect(workers, env, stream.rebalance().map(Stamp()))
    for receiver in (0, 1):
        received = [value for value, subtask in rows if subtask == receiver]
        assert received == sorted(received)
    assert len(rows) == ROWS + chunk - 1


def test_a_row_over_the_window_travels_alone(workers: WorkerHarness) -> None:
    env = environment()
    sizes = [10, 300_000, 20, 1_000_000, 30]
    stream = (
        env.from_collection(sizes)
        .map(lambda size: "x" * size)
        .rebalance()
        .map(lambda text: (len(text), set(text)))
    )
    assert sorted(collect(workers, env, stream)) == [(size, {"x"}) for size in sorted(sizes)]


def test_typed_rows_arrive_as_declared(workers: WorkerHarness) -> None:
    env = environment()
    kind = Types.ROW_NAMED(["name", "points"], [Types.STRING(), Types.LONG()])
    rows = [Row(name=f"n{i}", points=i) for i in range(50)]
    stream = (
        env.from_collection(rows, kind)
        .rebalance()
        .map(lambda row: (row["name"], row["points"], type(row).__name__))
    )
    assert sorted(collect(workers, env, stream), key=lambda r: r[1]) == [
        (f"n{i}", i, "Row") for i in range(50)
    ]


def test_rows_that_do_not_fit_their_declared_type_name_the_row(workers: WorkerHarness) -> None:
    env = environment()
    # Enough rows that some cross: those that stay pass by reference, unchecked.
    stream = env.from_collection(range(20)).map(lambda v: "text", Types.LONG()).rebalance().map(lambda v: v)
    with pytest.raises(JobFailedInHarness) as failed:
        collect(workers, env, stream)
    assert "expected" in failed.value.cause.message and "str" in failed.value.cause.message


class Changing(MapFunction[Any, Any]):
    """Changes and emits one list again and again."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.shared: list[int] = []

    def map(self, value: Any) -> Any:
        self.shared.append(value)
        return self.shared


class Spoiling(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        value.append(-1)
        return value


@pytest.fixture(scope="module")
def one_worker() -> Iterator[WorkerHarness]:
    with WorkerHarness(1, processes=False, configuration=TIGHT) as harness:
        yield harness


@pytest.mark.parametrize("partition", ["rebalance", "broadcast", "forward"])
def test_mutating_functions_in_one_worker(one_worker: WorkerHarness, partition: str) -> None:
    test_mutating_functions_across_workers(one_worker, partition)


@pytest.mark.parametrize("partition", ["rebalance", "broadcast", "forward"])
def test_mutating_functions_across_workers(workers: WorkerHarness, partition: str) -> None:
    env = environment()
    source = env.from_collection(list(range(20))).map(Changing()).set_parallelism(1)
    repartitioned = getattr(source, "rebalance" if partition == "forward" else partition)()
    spoiled = repartitioned.map(Spoiling())
    if partition == "forward":
        spoiled = spoiled.forward().map(lambda v: v)
    rows = collect(workers, env, spoiled)
    copies = 2 if partition == "broadcast" else 1
    assert sorted(rows, key=len) == [[*range(n + 1), -1] for n in range(20) for _ in range(copies)]


def test_tcp_with_mutual_tls() -> None:
    with WorkerHarness(2, processes=False, configuration=TIGHT, tcp=True) as workers:
        assert all(address.port and not address.unix_path for address in workers.addresses)
        found = routed(workers, lambda s: s.rebalance())
        assert values(found) == list(range(ROWS))
        env = environment()
        big = env.from_collection([3_000_000, 5]).map(lambda size: b"x" * size).rebalance().map(len)
        assert sorted(collect(workers, env, big)) == [5, 3_000_000]
