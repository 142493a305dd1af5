"""What a task puts out, in a file: each reader finds its chunks in their order; faults of the disk are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_disk import small_disk
from tests.unit.runtime.graph.programs import environment
from yarrow.container.batch.chunk import COLLECTED, FINISHED, Chunk
from yarrow.container.batch.local.exchange_files import (
    RESULTS,
    ExchangeFileError,
    ExchangeWriter,
    read_chunks,
)
from yarrow.runtime.graph.batch.batch_plan import BatchPlan
from yarrow.runtime.graph.batch.batch_planner import plan


def keyed() -> BatchPlan:
    env = environment(2, {"execution.runtime-mode": "BATCH"})
    env.set_max_parallelism(8)
    env.from_sequence(1, 9).key_by(lambda x: x % 2).reduce(lambda a, b: a + b).print()
    return plan(env.get_job_graph())


PLAN = keyed()
(EDGE,) = (exchange.edge for exchange in PLAN.stages[0].outputs)


def write(path: Path, chunks: list[Chunk], budget: int = 1 << 20) -> None:
    with ExchangeWriter(path, PLAN, PLAN.stages[0], budget) as writer:
        for chunk in chunks:
            writer.add(chunk)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from([EDGE, EDGE, COLLECTED, FINISHED]), st.integers(0, 7), st.binary(max_size=300)
        )
    ),
    st.sampled_from([1, 1000, 1 << 20]),
)
def test_each_reader_finds_its_chunks_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int, bytes]], budget: int
) -> None:
    path = tmp_path_factory.mktemp("exchange") / "0-1"
    chunks = [
        Chunk(edge, target, 1, number, len(payload), payload)
        for number, (edge, target, payload) in enumerate(made)
    ]
    write(path, chunks, budget)
    for partition in (0, 1):
        # Key groups 0 to 3 belong to the first of two partitions.
        own = [chunk for chunk in chunks if chunk.edge == EDGE and chunk.target // 4 == partition]
        assert list(read_chunks(path, {(EDGE, partition)})) == own
    assert list(read_chunks(path, (RESULTS,))) == [chunk for chunk in chunks if chunk.edge < 0]


def test_changed_bytes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "0-0"
    write(path, [Chunk(EDGE, 0, 0, 0, 1, b"payload")])
    data = bytearray(path.read_bytes())
    data[data.index(b"payload")] ^= 1
    path.write_bytes(data)
    with pytest.raises(ExchangeFileError, match=r"0-0 of an exchange is not what was written"):
        list(read_chunks(path, {(EDGE, 0)}))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExchangeFileError, match="of an exchange cannot be read"):
        list(read_chunks(tmp_path / "none", {(EDGE, 0)}))


def test_an_attempt_that_fails_leaves_no_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "0-0"
    with pytest.raises(ZeroDivisionError), ExchangeWriter(path, PLAN, PLAN.stages[0]) as writer:
        writer.add(Chunk(EDGE, 0, 0, 0, 1, b"payload"))
        raise ZeroDivisionError
    assert path.read_bytes() == b""
    with pytest.raises(ExchangeFileError, match="cannot be made"):
        ExchangeWriter(path, PLAN, PLAN.stages[0])


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "small", 1) as disk,
        pytest.raises(ExchangeFileError, match=r"the disk of \S+small is full .*process.working-dir"),
    ):
        write(disk / "0-0", [Chunk(EDGE, 0, 0, number, 1, bytes(100_000)) for number in range(20)], 1)
