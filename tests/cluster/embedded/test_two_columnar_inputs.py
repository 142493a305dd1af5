"""Two columnar inputs of one operator over the network of two TaskExecutors, with checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.shipped_numbering import copied, imported
from yarrow.common import Row, Types
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster

ROWS = 40_000
KEYS = 500


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=1) as running:
        yield running


def fact(number: int) -> Row:
    return Row(number % KEYS, str(number % 7), number)


def entry(number: int) -> Row:
    return Row(number // 7, str(number % 7), number)


def test_each_fact_meets_its_row_once(cluster: MiniCluster, tmp_path: Path) -> None:
    env = cluster.get_execution_environment(
        {
            "parallelism.default": "2",
            "restart-strategy.type": "none",
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.dir": f"{tmp_path}/checkpoints",
        }
    )
    env.add_python_file(str(copied(tmp_path / "shipped", "lookup")))
    folder = copied(tmp_path / "client", "lookup").parent
    types = [Types.LONG(), Types.STRING(), Types.LONG()]
    with imported(folder, "lookup") as lookup:
        facts = env.from_sequence(0, ROWS - 1).map(fact, Types.ROW_NAMED(["k", "part", "amount"], types))
        table = env.from_sequence(0, 7 * KEYS - 1).map(entry, Types.ROW_NAMED(["id", "of", "price"], types))
        made = lookup.looked_up(facts.to_arrow().key_by("k", "part"), table.to_arrow().key_by("id", "of"))
        # What the client imports is gone: workers have what was shipped, and nothing else.
        shutil.rmtree(folder)
        rows: list[Any] = []
        with made.to_rows(as_tuple=True).execute_and_collect() as found:
            rows += found
    assert sorted(rows, key=lambda row: row[2]) == [
        (number % KEYS, str(number % 7), number, number % KEYS * 7 + number % 7) for number in range(ROWS)
    ]
