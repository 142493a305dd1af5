"""Keys and values of the database: many at once are what they are one by one."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import Options

from tests.unit.container.state.rocksdb.storage import CHECKPOINT, Worker
from yarrow.common.typeinfo import BasicTypeInfo, TypeInformation, Types
from yarrow.container.state.rocksdb.database import BATCH_BYTES, BATCH_ENTRIES, HELPER, Database, _parts
from yarrow.container.state.rocksdb.keys import DatabaseKeys, end_of, group_of, group_start
from yarrow.container.state.rocksdb.store import StoreLimits
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.snapshot.errors import StateSerializationError
from yarrow.runtime.snapshot.value_serializers import value_serializer


class Level(IntEnum):
    LOW = 1


PAIRS = Types.TUPLE([Types.LONG(), Types.INT()])
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
#: None is absent.
VALUES = st.one_of(st.none(), st.tuples(LONGS, st.integers(-(1 << 31), (1 << 31) - 1)))


@given(st.lists(LONGS, unique=True, max_size=60), st.integers(1, 1 << 15))
def test_integers_come_in_the_order_of_the_database(keys: list[int], max_parallelism: int) -> None:
    made = DatabaseKeys(max_parallelism)
    encoded, order = made.encode_sorted(keys)
    assert encoded == sorted(made.encode_all(keys)) == sorted(map(made.encode, keys))
    assert [made.encode(keys[position]) for position in order] == encoded
    assert all(group_of(key) < max_parallelism for key in encoded)


@given(
    st.lists(st.one_of(LONGS, st.text(max_size=5), st.integers(1 << 63, 1 << 70)), unique=True, max_size=40)
)
def test_so_do_other_keys(keys: list[Any]) -> None:
    made = DatabaseKeys(128)
    encoded, order = made.encode_sorted(keys)
    assert encoded == sorted(map(made.encode, keys))
    assert [made.encode(keys[position]) for position in order] == encoded


def test_negative_integers_lie_behind_the_others_of_their_key_group() -> None:
    keys = [*range(-20, 20), -(1 << 63), (1 << 63) - 1]
    made = DatabaseKeys(1)
    encoded, order = made.encode_sorted(keys)
    assert encoded == sorted(encoded), "the database's own order"
    assert [keys[position] for position in order] == [
        *range(20), (1 << 63) - 1, -(1 << 63), *range(-20, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("key", [255, -1, 511, -257, 65535])
def test_the_end_of_a_prefix_whose_last_bytes_are_0xff(key: int) -> None:
    prefix = DatabaseKeys(128).encode(key)
    assert prefix.endswith(b"\xff")
    end = end_of(prefix)
    assert all(prefix + rest < end for rest in (b"", b"\x00", b"\xff" * 9))
    assert int.from_bytes(end, "big") << 8 * (len(prefix) - len(end)) == int.from_bytes(prefix, "big") + 1, (
        "no key lies between"
    )


def values_of(type_info: TypeInformation, ttl: bool) -> StateValues:
    return StateValues(value_serializer(type_info, "s", "op"), type_info, ttl)


@given(st.lists(VALUES, max_size=30), st.booleans())
def test_values_are_read_and_written_as_one_by_one(values: list[Any], ttl: bool) -> None:
    made = values_of(PAIRS, ttl)
    held = [value if value is None or not ttl else (5, value) for value in values]
    written = [value for value in held if value is not None]
    assert made.dump_all(written) == list(map(made.dump, written))
    data = [None if value is None else made.dump(value) for value in held]
    assert made.load_all(data, MISSING) == [MISSING if value is None else value for value in held]


@pytest.mark.slow
@pytest.mark.parametrize("declared", [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()], ids=str)
@given(data=st.data())
def test_many_numbers_are_written_as_one_by_one(declared: BasicTypeInfo, data: Any) -> None:
    assert declared.value_range is not None
    least, most = declared.value_range
    values: list[Any] = data.draw(st.lists(st.integers(least, most), min_size=16, max_size=20))
    for ttl in (False, True):
        made = values_of(declared, ttl)
        held = [(5, value) for value in values] if ttl else values
        assert made.dump_all(held) == list(map(made.dump, held))
    made = values_of(declared, False)
    values[3] = data.draw(st.sampled_from([True, Level.LOW]))
    assert made.dump_all(values) == list(map(made.dump, values))


@pytest.mark.parametrize("misfit", [1 << 15, -(1 << 15) - 1, 1 << 70])
def test_a_number_beyond_its_width_is_refused_among_many(misfit: int) -> None:
    with pytest.raises(StateSerializationError, match=rf"'op', state 's': .*of 16 bits .*got int {misfit}"):
        values_of(Types.SHORT(), False).dump_all([*range(20), misfit])


def test_a_value_that_was_not_packed_is_read_among_those_that_were() -> None:
    made = values_of(PAIRS, False)
    plain = made.serializer.dump_value((7, 8))
    packed = made.dump((1, 2))
    assert plain[0] != packed[0]
    assert made.load_all([packed, plain, packed], MISSING) == [(1, 2), (7, 8), (1, 2)]


@pytest.mark.parametrize(
    ("misfit", "field", "bits"), [((1, 1 << 40), 1, 32), ((1 << 63, 2), 0, 64), ((1, -(1 << 31) - 1), 1, 32)]
)
def test_a_number_beyond_its_width_is_refused_among_others(
    misfit: tuple[int, int], field: int, bits: int
) -> None:
    made = values_of(PAIRS, False)
    with pytest.raises(
        StateSerializationError,
        match=rf"'op', state 's': field {field} of row 0: expected an int of {bits} bits .* got int "
        rf"{misfit[field]}\. .*declared TupleTypeInfo\(Long, Integer\)",
    ):
        made.dump_all([(1, 2), misfit, (3, 4)])


@pytest.mark.parametrize("declared", [Types.INT(), Types.TUPLE([Types.STRING(), Types.INT()])])
def test_the_task_that_sets_such_a_number_fails_with_its_name(
    worker: Worker, declared: TypeInformation
) -> None:
    backend = worker.backend(operator_name="my operator", limits=StoreLimits(most_changes=1))
    state = backend.value_state(ValueStateDescriptor("counts", declared))
    backend.current_key = 1
    state.update(1 << 40 if declared == Types.INT() else ("a", 1 << 40))
    with pytest.raises(
        StateSerializationError,
        match=r"'my operator', state 'counts': .*32 bits .*1099511627776.*declared .*Integer",
    ):
        backend.snapshot(1, CHECKPOINT)


@pytest.mark.parametrize("number", [1, 2, 20])
def test_batches_are_bounded_and_whole(number: int) -> None:
    for size in (1, BATCH_BYTES // 8, BATCH_BYTES + 1):
        data = [b"x" * size] * number
        parts = list(_parts(data))
        assert [part[0] for part in parts[1:]] == [part[1] for part in parts[:-1]]
        assert (parts[0][0], parts[-1][1]) == (0, len(data))
        assert all((end - start - 1) * size < BATCH_BYTES for start, end in parts)


def test_a_generation_of_many_batches_is_written_whole(worker: Worker) -> None:
    backend = worker.backend(limits=StoreLimits(most_changes=3 * BATCH_ENTRIES))
    table = backend.value_table("sums", PAIRS)
    keys = [number * 7919 % 10_007 - 5000 for number in range(6000)]
    for start in range(0, len(keys), 100):
        chunk = keys[start : start + 100]
        table.prefetch(chunk)
        live = table.live[0]
        for key in chunk:
            assert key not in live
            live[key] = (key, start)
        backend.end_of_chunk()
    handles = backend.snapshot(1, CHECKPOINT).write(worker.storage)
    for found in (backend, worker.backend(handles)):
        again = found.value_table("sums", PAIRS)
        again.prefetch(keys)
        assert [again.live[0][key] for key in keys] == [
            (key, position // 100 * 100) for position, key in enumerate(keys)
        ]


def test_the_first_key_is_not_looked_for_beyond_many_that_were_removed(tmp_path: Path) -> None:
    """Removed entries lie there until files are compacted: what looks at one key in a cut must not read them all."""
    options = Options(raw_mode=True)
    database = Database("op", str(tmp_path / "database"), options, HELPER)
    try:
        family = database.family("state")
        start, end = group_start(0), group_start(16)
        assert family.first_key(start, end) is None
        keys = [number.to_bytes(4, "big") for number in range(30_000)]
        family.put_all((key, b"value") for key in keys)
        assert family.first_key(start, end) == keys[0]
        family.delete_all(keys[:1000])
        assert family.first_key(start, end) == keys[1000]
        family.delete_all(keys[1000:-1])
        assert family.first_key(start, end) is None
        assert next(family.scan(start, end), None) == (keys[-1], b"value")
    finally:
        database.close()
