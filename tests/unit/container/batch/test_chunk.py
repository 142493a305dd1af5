"""Chunks as columns and back."""

from __future__ import annotations

from yarrow.container.batch.chunk import (
    CHUNK_SCHEMA,
    FINISHED,
    Chunk,
    TaskResult,
    decode_task_result,
    encode_task_result,
    from_record_batch,
    to_record_batch,
)

CHUNKS = [Chunk(0, 127, 1, sequence, 3, bytes([sequence]) * 10) for sequence in range(5)]


def test_chunks_are_the_same_behind_columns() -> None:
    batch = to_record_batch(CHUNKS)
    assert batch.schema == CHUNK_SCHEMA
    assert list(from_record_batch(batch)) == CHUNKS


def test_no_chunk_is_an_empty_batch() -> None:
    assert list(from_record_batch(to_record_batch([]))) == []


def test_columns_are_found_by_name() -> None:
    names = [*reversed(CHUNK_SCHEMA.names)]
    assert list(from_record_batch(to_record_batch(CHUNKS).select(names))) == CHUNKS


def test_results_travel() -> None:
    result = TaskResult(accumulators={"seen": 3}, operators=(("a", 1, 2),), records_out=2)
    chunk = Chunk(FINISHED, 0, 0, 9, 0, encode_task_result(result))
    assert decode_task_result(chunk.payload) == result
