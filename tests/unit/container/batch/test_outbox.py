"""Outbox: chunks wait in memory as far as the budget goes, the rest on disk, all in their order."""

from __future__ import annotations

from pathlib import Path

from yarrow.container.batch.chunk_channel import Outbox


def test_chunks_beyond_the_budget_wait_on_disk_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    outbox = Outbox(3, folder, budget=1000)
    payloads = [bytes([number]) * 300 for number in range(20)]
    for payload in payloads:
        outbox.put(1, 0, 1, payload)
    # Only the task's own process sees the file.
    assert folder.exists() and not list(folder.iterdir())
    taken = list(outbox.take())
    assert [chunk.payload for chunk in taken] == payloads
    assert [chunk.sequence for chunk in taken] == list(range(20))
    assert {chunk.producer for chunk in taken} == {3}
    assert not outbox.is_full and not list(outbox.take())


def test_what_is_put_meanwhile_comes_with_the_next_take(tmp_path: Path) -> None:
    outbox = Outbox(0, tmp_path, budget=100)
    for number in range(4):
        outbox.put(1, number, 1, b"x" * 60)
    first = outbox.take()
    assert not outbox.is_full
    outbox.put(1, 9, 1, b"y")
    assert [chunk.target for chunk in first] == [0, 1, 2, 3]
    assert [chunk.target for chunk in outbox.take()] == [9]


def test_small_results_touch_no_disk(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    outbox = Outbox(0, folder)
    outbox.put(1, 0, 1, b"x")
    assert [chunk.payload for chunk in outbox.take()] == [b"x"]
    assert not folder.exists()
