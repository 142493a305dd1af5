"""Seals of metadata, and what is refused of a snapshot that bears none."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.snapshot.test_metadata import METADATA
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.snapshot.errors import CorruptSnapshotError, SnapshotStorageError, UntrustedPickleError
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    InlineStateHandle,
    KeyedStateHandle,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorSubtaskState,
    RocksDBSnapshot,
    SerializerConfig,
    StateKind,
    StateMetaInfo,
    ValueFormat,
)
from yarrow.runtime.snapshot.metadata import Seal, decode_metadata, encode_metadata, seal_of
from yarrow.runtime.snapshot.trust import SnapshotTrust, check_trust, read_secret

SECRET = b"sixteen bytes or more"
SEALED = encode_metadata(METADATA, SECRET)
TYPED = SerializerConfig(format=ValueFormat.TYPED, type_spec="LONG")
PLAIN = SerializerConfig(format=ValueFormat.PLAIN)
PICKLED = SerializerConfig(format=ValueFormat.PLAIN, pickled=("a.B",))


def test_a_sealed_file_is_read_by_those_who_do_not_ask_for_the_seal() -> None:
    assert decode_metadata(SEALED, "p") == METADATA
    assert seal_of(SEALED, b"") is Seal.UNCHECKED
    assert seal_of(SEALED, SECRET) is Seal.VALID
    assert seal_of(SEALED, b"another secret here") is Seal.WRONG
    assert seal_of(encode_metadata(METADATA), SECRET) is Seal.ABSENT


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_no_byte_of_a_sealed_file_can_be_changed(place: int, change: int) -> None:
    changed = bytearray(SEALED)
    changed[place] ^= change
    try:
        decode_metadata(bytes(changed), "p")
    except CorruptSnapshotError:
        return
    assert seal_of(bytes(changed), SECRET) is Seal.WRONG


def snapshot(config: SerializerConfig, *, native: bool = False, map_key: bool = False) -> CheckpointMetadata:
    value, key = (TYPED, config) if map_key else (config, None)
    states = (StateMetaInfo(name="seen", kind=StateKind.VALUE, value=value, map_key=key),)
    keyed: KeyedStateHandle = KeyGroupsSnapshot(
        key_groups=(0, 127), states=states, handle=InlineStateHandle(data=b"")
    )
    if native:
        keyed = RocksDBSnapshot(key_groups=(0, 127), backend_id="b", states=states, shared=(), private=())
    operator = OperatorState(
        operator_id=OperatorID("a" * 32), name="counting", uid=None, parallelism=1, max_parallelism=128,
        subtasks={0: OperatorSubtaskState(keyed=(keyed,))},
    )  # fmt: skip
    return CheckpointMetadata(
        engine_version="0", job_id=JobID("b" * 32), job_name="j", checkpoint_id=1, timestamp_ms=1,
        kind=SnapshotKind.SAVEPOINT, operators=(operator,),
    )  # fmt: skip


WITH_SECRET, NO_PICKLES = SnapshotTrust(SECRET), SnapshotTrust(trust_pickle=False)


@pytest.mark.parametrize("map_key", [False, True])
@pytest.mark.parametrize("native", [False, True])
def test_pickled_state_is_refused_by_name_without_the_right_seal(map_key: bool, native: bool) -> None:
    metadata = snapshot(PICKLED, native=native, map_key=map_key)
    assert check_trust(metadata, Seal.VALID, WITH_SECRET, "/sp")
    for seal, why in ((Seal.WRONG, "another secret, or changed"), (Seal.ABSENT, "bears no seal")):
        with pytest.raises(UntrustedPickleError, match=f"/sp.*{why}.*operator 'counting', state 'seen'"):
            check_trust(metadata, seal, WITH_SECRET, "/sp")
    with pytest.raises(
        UntrustedPickleError, match=r"trust-pickle is false: operator 'counting', state 'seen'"
    ):
        check_trust(metadata, Seal.UNCHECKED, NO_PICKLES, "/sp")


def test_without_a_secret_pickled_state_is_read_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert check_trust(snapshot(TYPED), Seal.UNCHECKED, SnapshotTrust(), "/sp")
        assert not caplog.records
        assert check_trust(snapshot(PICKLED), Seal.UNCHECKED, SnapshotTrust(), "/sp")
    (record,) = caplog.records
    assert "operator 'counting', state 'seen'" in record.getMessage() and "/sp" in record.getMessage()


def test_what_declares_no_pickles_is_restored_and_nothing_in_it_unpickled() -> None:
    for trust, seal in ((WITH_SECRET, Seal.ABSENT), (NO_PICKLES, Seal.UNCHECKED)):
        assert check_trust(snapshot(PLAIN), seal, trust, "/sp") is False
        assert check_trust(snapshot(TYPED, native=True), seal, trust, "/sp") is False
        with pytest.raises(UntrustedPickleError, match="seen"):
            # Values without a type in the files of a database are not looked at before they are read.
            check_trust(snapshot(PLAIN, native=True), seal, trust, "/sp")


def test_the_secret_stays_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    os.chmod(path, 0o640)
    with pytest.raises(SnapshotStorageError, match="chmod 600"):
        read_secret(str(path))
    os.chmod(path, 0o600)
    assert read_secret(str(path)) == SECRET
    assert "sixteen" not in repr(SnapshotTrust.of(str(path), True))
    assert str(path) not in str(Settings({"security.snapshot.secret-file": str(path)}).to_dict())
    path.write_bytes(b"short")
    with pytest.raises(SnapshotStorageError, match=r"shorter than 16.*openssl"):
        read_secret(str(path))
    with pytest.raises(SnapshotStorageError, match=r"secret-file: .*gone cannot be read"):
        read_secret(str(tmp_path / "gone"))
