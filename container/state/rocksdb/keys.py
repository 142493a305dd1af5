"""The keys of RocksDB: two bytes of key group, the encoded canonical key, and a suffix for each entry of the key.

Owner: the task thread; its only state is the number of key groups. Key encodings are self-delimiting, so that
all entries of a key, and all keys of a key group, form one range each. In a state by window the window's place stands
between key group and key: a window is one range in each key group. Any change makes native checkpoints unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from yarrow.runtime.data.key_encoding import INT, VERSION
from yarrow.runtime.data.key_groups import key_hash
from yarrow.runtime.data.keys import decode_key_from, encode_key
from yarrow.runtime.data.vectorized_hashes import mix64_array
from yarrow.runtime.data.window_forms import stored_window

GROUP_BYTES: Final = 2
_INT_KEY: Final = np.dtype([("group", ">u2"), ("head", ">u2"), ("key", ">i8")])
_INT_HEAD: Final = VERSION << 8 | INT
#: With fewer keys, numpy costs more than it saves.
_FEW: Final = 16

Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class DatabaseKeys:
    """Encodes canonical keys for one max parallelism."""

    def __init__(self, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._groups = [group.to_bytes(GROUP_BYTES, "big") for group in range(max_parallelism)]

    def encode(self, key: Any) -> bytes:
        """The prefix of all entries of a canonical key."""
        encoded = encode_key(key)
        return self._groups[key_hash(encoded) % self._max_parallelism] + encoded

    def encode_all(self, keys: Sequence[Any]) -> list[bytes]:
        """Encodes many keys; for 64-bit integers without a Python call each."""
        integers = _integers(keys)
        if integers is None:
            return [self.encode(key) for key in keys]
        return self._encoded(integers, self._groups_of(integers))

    def encode_sorted(self, keys: Sequence[Any]) -> tuple[list[bytes], list[int]]:
        """Encodes many keys; returns them in database order, each with its position in `keys`."""
        integers = _integers(keys)
        if integers is None:
            encoded = [self.encode(key) for key in keys]
            order = sorted(range(len(encoded)), key=encoded.__getitem__)
            return [encoded[position] for position in order], order
        groups = self._groups_of(integers)
        # As unsigned numbers, because negative ones come after the others.
        positions = np.lexsort((integers.view(np.uint64), groups))
        return self._encoded(integers[positions], groups[positions]), positions.tolist()

    def key_of(self, database_key: bytes) -> Any:
        """The canonical key of an entry."""
        return decode(database_key)[0]

    def _encoded(self, keys: Integers, groups: np.ndarray[Any, np.dtype[np.uint64]]) -> list[bytes]:
        return _encoded_integers(keys, groups, np.empty(len(keys), _INT_KEY))

    def _groups_of(self, keys: Integers) -> np.ndarray[Any, np.dtype[np.uint64]]:
        groups: np.ndarray[Any, np.dtype[np.uint64]] = mix64_array(keys.view(np.uint64)) % np.uint64(
            self._max_parallelism
        )
        return groups


class WindowKeys(DatabaseKeys):
    """The same within one window."""

    def __init__(self, keys: DatabaseKeys, place: bytes) -> None:
        """`place` as WindowForm gives it."""
        self._max_parallelism, self._groups = keys._max_parallelism, keys._groups
        self._place = place
        window = ("window", f"V{len(place)}")
        self._form = np.dtype([("group", ">u2"), window, ("head", ">u2"), ("key", ">i8")])

    def encode(self, key: Any) -> bytes:
        encoded = super().encode(key)
        return encoded[:GROUP_BYTES] + self._place + encoded[GROUP_BYTES:]

    def key_of(self, database_key: bytes) -> Any:
        return decode_key_from(database_key, GROUP_BYTES + len(self._place))[0]

    def _encoded(self, keys: Integers, groups: np.ndarray[Any, np.dtype[np.uint64]]) -> list[bytes]:
        out = np.empty(len(keys), self._form)
        out["window"] = np.void(self._place)
        return _encoded_integers(keys, groups, out)


def _integers(keys: Sequence[Any]) -> Integers | None:
    """The keys as an int64 array of the same length, if they are many and all 64-bit integers; else None."""
    if len(keys) < _FEW or set(map(type, keys)) != {int}:
        return None
    try:
        return np.array(keys, np.int64)
    except OverflowError:
        return None


def _encoded_integers(
    keys: Integers, groups: np.ndarray[Any, np.dtype[np.uint64]], out: np.ndarray[Any, Any]
) -> list[bytes]:
    out["group"] = groups
    out["head"] = _INT_HEAD
    out["key"] = keys
    encoded: list[bytes] = out.view(f"V{out.itemsize}").tolist()
    return encoded


def group_of(database_key: bytes) -> int:
    """The key group of an entry."""
    return int.from_bytes(database_key[:GROUP_BYTES], "big")


def split(database_key: bytes) -> tuple[bytes, bytes]:
    """(encoded key, suffix) of an entry's key. Raises KeyDecodeError."""
    _, end = decode_key_from(database_key, GROUP_BYTES)
    return database_key[GROUP_BYTES:end], database_key[end:]


def decode(database_key: bytes) -> tuple[Any, bytes]:
    """(canonical key, suffix) of an entry's key. Raises KeyDecodeError."""
    key, end = decode_key_from(database_key, GROUP_BYTES)
    return key, database_key[end:]


def window_start(database_key: bytes) -> tuple[Any, int]:
    """(what its window is stored as, where its key begins) of an entry of a state by window. Raises KeyDecodeError."""
    return stored_window(database_key, GROUP_BYTES)


def key_by_window(database_key: bytes) -> Any:
    """The canonical key of such an entry. Raises KeyDecodeError."""
    return decode_key_from(database_key, window_start(database_key)[1])[0]


def group_start(group: int) -> bytes:
    """The least key of a key group; for the group after the last, an end that no entry reaches."""
    return group.to_bytes(GROUP_BYTES, "big") if group < 1 << 16 else b"\xff" * 17


def end_of(prefix: bytes) -> bytes:
    """The least key behind all keys with that prefix, which must not consist of 0xff alone."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
