"""The rows of a key group: key by key, in order of time, in memory and on disk alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from yarrow.container.batch.key_order import KeyedEdge, KeyOrder
from yarrow.container.batch.spilled_runs import SpillError
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.runtime.data.elements import RowBatch
from yarrow.runtime.data.keys import canonicalize, encode_key
from yarrow.runtime.data.serializers.serializers import serializer_for

CODEC = ElementCodec(serializer_for(None))
#: Edges 0 and 1 lead to the first input, edge 2 to the second.
EDGES = {
    edge: KeyedEdge(number, lambda row: row[0], CODEC, "keyed") for edge, number in ((0, 0), (1, 0), (2, 1))
}
LARGE, SMALL = 1 << 30, 2_000

Found = list[list[tuple[int, Any, int | None]]]


def ordered(
    batches: list[tuple[int, RowBatch]], budget: int, directory: Path, *, by_time_alone: bool = False
) -> Found:
    """(input, row, timestamp) of each key."""
    order = KeyOrder(EDGES, budget, directory, by_time_alone=by_time_alone)
    for edge, batch in batches:
        order.add(edge, batch)
    assert (order.spilled_runs > 0) is (budget == SMALL)
    found: Found = []
    for pieces in order.by_key():
        found.append([])
        for piece in pieces:
            stamps = piece.timestamps or [None] * len(piece.rows)
            found[-1] += zip([piece.input] * len(piece.rows), piece.rows, stamps, strict=True)
    order.close()
    return found


@pytest.mark.parametrize("budget", [LARGE, SMALL])
def test_keys_come_in_order_of_their_encoding(budget: int, tmp_path: Path) -> None:
    keys = ["b", 2, 1.0, None, ("a", 1), 1, "a", -5]
    batches = [(0, RowBatch([(key, turn) for key in keys])) for turn in range(10)]
    found = ordered(batches, budget, tmp_path)
    distinct = {encode_key(canonicalize(key)) for key in keys}
    assert [encode_key(canonicalize(rows[0][1][0])) for rows in found] == sorted(distinct)
    assert sum(map(len, found)) == 80


@pytest.mark.parametrize("budget", [LARGE, SMALL])
def test_rows_of_a_key_come_in_order_of_time_input_and_place(budget: int, tmp_path: Path) -> None:
    batches = [
        (edge, RowBatch([("k", edge, turn, place) for place in range(6)], [5, None, 3, 5, 4, 3]))
        for edge in (0, 1, 2)
        for turn in range(4)
    ]
    (found,) = ordered(batches, budget, tmp_path)
    rows = [row for _, batch in batches for row in batch.rows]
    stamps = {
        row: stamp
        for _, batch in batches
        for row, stamp in zip(batch.rows, batch.timestamps or (), strict=True)
    }
    expected = sorted(rows, key=lambda row: (stamps[row] or 0, row[1] == 2, row[1], row[2], row[3]))
    assert [row for _, row, _ in found] == expected
    assert [stamp for *_, stamp in found] == [stamps[row] for row in expected]
    assert [number for number, *_ in found] == [int(row[1] == 2) for row in expected]


@pytest.mark.parametrize("budget", [LARGE, SMALL])
def test_rows_without_times_of_one_edge_keep_their_order(budget: int, tmp_path: Path) -> None:
    order = KeyOrder({0: EDGES[0]}, budget, tmp_path, timed=False)
    for turn in range(20):
        order.add(0, RowBatch([("ab"[n % 2], turn, n) for n in range(200)]))
    found = [[row for piece in pieces for row in piece.rows] for pieces in order.by_key()]
    order.close()
    assert found == [
        [(key, turn, n) for turn in range(20) for n in range(at, 200, 2)] for at, key in enumerate("ab")
    ]


@pytest.mark.parametrize("budget", [LARGE, SMALL])
def test_keys_mix_where_only_time_counts(budget: int, tmp_path: Path) -> None:
    batches = [
        (0, RowBatch([("ab"[n % 2], turn) for n in range(6)], [turn - n for n in range(6)]))
        for turn in range(9)
    ]
    (found,) = ordered(batches, budget, tmp_path, by_time_alone=True)
    stamps = [stamp or 0 for *_, stamp in found]
    assert stamps == sorted(stamps)
    assert len(stamps) == 54


def test_files_are_gone_behind_the_group(tmp_path: Path) -> None:
    ordered([(0, RowBatch([("k", n) for n in range(100)]))], SMALL, tmp_path / "spilled")
    assert list((tmp_path / "spilled").iterdir()) == []


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    order = KeyOrder(EDGES, SMALL, tmp_path / "file", by_time_alone=False)
    with pytest.raises(SpillError, match=r"file: .*execution\.batch\.sort-memory"):
        order.add(0, RowBatch([("k", n) for n in range(100)]))


def test_a_key_that_cannot_be_computed_names_its_record(tmp_path: Path) -> None:
    order = KeyOrder(EDGES, LARGE, tmp_path, by_time_alone=False)
    with pytest.raises(OperatorFailure) as raised:
        order.add(0, RowBatch([("k", 1), 7]))
    assert (raised.value.operator_name, raised.value.record) == ("keyed", "7")
