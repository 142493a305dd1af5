"""`_metadata`: what was written comes back, and nothing else is taken for it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.snapshot.errors import CorruptSnapshotError
from yarrow.runtime.snapshot.handles import (
    METADATA_VERSION,
    ChannelStateHandle,
    CheckpointMetadata,
    DatabaseFile,
    FileStateHandle,
    InlineStateHandle,
    KeyGroupsSnapshot,
    NamedOperatorState,
    OperatorState,
    OperatorStateHandle,
    OperatorStateMode,
    OperatorSubtaskState,
    RocksDBSnapshot,
    SerializerConfig,
    StateKind,
    StateMetaInfo,
    ValueFormat,
)
from yarrow.runtime.snapshot.metadata import MAGIC, decode_metadata, encode_metadata

INLINE = InlineStateHandle(data=b"abc")
FILE = FileStateHandle(path="state-1", offset=3, length=9, sha256=b"\x01" * 32)
STATES = (
    StateMetaInfo(
        name="s", kind=StateKind.MAP, value=SerializerConfig(format=ValueFormat.TYPED, type_spec=["LIST", "LONG"]),
        map_key=SerializerConfig(format=ValueFormat.PLAIN, pickled=("a.B",)), ttl=True,
    ),
)  # fmt: skip
SUBTASK = OperatorSubtaskState(
    keyed=(
        KeyGroupsSnapshot(key_groups=(0, 63), states=STATES, handle=FILE),
        RocksDBSnapshot(
            key_groups=(64, 127), backend_id="b", states=STATES,
            shared=(DatabaseFile(name="1.sst", handle=FILE),), private=(DatabaseFile(name="CURRENT", handle=INLINE),),
        ),
    ),
    operator=(
        OperatorStateHandle(
            states=(
                NamedOperatorState(
                    name="l", mode=OperatorStateMode.SPLIT, value=STATES[0].value, elements=((0, 1), (1, 2))
                ),
            ),
            handle=INLINE,
        ),
    ),
    channels=(ChannelStateHandle(edge="e", producer=0, consumer=1, at_producer=True, handle=INLINE),),
)  # fmt: skip
METADATA = CheckpointMetadata(
    engine_version="0.1", job_id=JobID("0" * 32), job_name="job", checkpoint_id=7, timestamp_ms=1_700_000_000_000,
    kind=SnapshotKind.SAVEPOINT,
    operators=(
        OperatorState(
            operator_id=OperatorID("a" * 32), name="op", uid="u", parallelism=2, max_parallelism=128,
            subtasks={1: SUBTASK}, coordinator=INLINE, finished_subtasks=(0,),
        ),
    ),
)  # fmt: skip
WHOLE = encode_metadata(METADATA)


def test_everything_comes_back() -> None:
    assert decode_metadata(WHOLE, "p") == METADATA


@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_any_flipped_bit_is_found_and_the_file_named(bit: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshotError, match=r"^/some/_metadata: "):
        decode_metadata(bytes(damaged), "/some/_metadata")


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=20))
def test_any_other_length_is_found(cut: int, more: bytes) -> None:
    for damaged in (WHOLE[:cut], WHOLE + more):
        with pytest.raises(CorruptSnapshotError):
            decode_metadata(damaged, "p")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04 something", "no metadata of a checkpoint or savepoint"),
        (WHOLE[:20], "within its head"),
        (WHOLE[:-1], "truncated or torn"),
        (
            MAGIC + struct.pack("<I", METADATA_VERSION + 1) + WHOLE[12:],
            "version is 2 and this release reads up to 1",
        ),
        (WHOLE[:-1] + b"\x01", "SHA-256 differs"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptSnapshotError, match=problem):
        decode_metadata(data, "p")
