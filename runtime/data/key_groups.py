"""Key groups: the hash of a key, and the ranges of subtasks.

Fixed for ever by docs/design/0003-key-encoding.md: a savepoint written under other rules could not be
restored. Owner: the functions have no state. They must not know channels or batches.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import xxhash

from yarrow.runtime.data.errors import InvalidParallelismError
from yarrow.runtime.data.key_encoding import (
    DATE,
    DATETIME,
    DURATION,
    FLOAT,
    INSTANT,
    INT,
    MAX_INT64,
    MIN_INT64,
    TIME,
)
from yarrow.runtime.data.keys import canonicalize, encode_key

UPPER_BOUND_MAX_PARALLELISM: Final = 32768

MASK64: Final = (1 << 64) - 1
#: Constants of the splitmix64 finalizer (Steele, Lea, Flood 2014).
GAMMA: Final = 0x9E3779B97F4A7C15
MIX1: Final = 0xBF58476D1CE4E5B9
MIX2: Final = 0x94D049BB133111EB
#: Seed of xxh3_64, for all keys that are not one 64-bit payload: the one it has when none is given.
SEED: Final = 0

#: Tags whose encoding is one 64-bit payload, and the constant that is xor-ed with the payload before mixing.
SALTS: Final[dict[int, int]] = {
    tag: (tag - INT) * GAMMA & MASK64 for tag in (INT, FLOAT, DATE, TIME, DATETIME, INSTANT, DURATION)
}

#: The hash of an encoding that is no 64-bit payload.
xxh3: Final = xxhash.xxh3_64_intdigest
#: The bytes in front of a text in its encoding, by the length of the text in bytes.
TEXT_HEADS: Final = [encode_key("x" * size)[: -size or None] for size in range(256)]


def mix64(payload: int) -> int:
    """The splitmix64 finalizer of an integer modulo 2**64.

    `vectorized_keys` has the same over numpy arrays.
    """
    z = (payload + GAMMA) & MASK64
    z = ((z ^ (z >> 30)) * MIX1) & MASK64
    z = ((z ^ (z >> 27)) * MIX2) & MASK64
    return z ^ (z >> 31)


def key_hash(encoded: bytes) -> int:
    """The unsigned 64-bit hash of a key encoding."""
    salt = SALTS.get(encoded[1])
    if salt is None:
        return xxh3(encoded)
    return mix64(int.from_bytes(encoded[2:10], "big") ^ salt)


def hash_of_key(key: Any) -> int:
    """The hash of a canonical key: `key_hash(encode_key(key))`, without the encoding for 64-bit integers."""
    if type(key) is int and MIN_INT64 <= key <= MAX_INT64:
        return mix64(key)
    return key_hash(encode_key(key))


def key_group_of(key: Any, max_parallelism: int) -> int:
    """The key group of a canonical key."""
    return hash_of_key(key) % max_parallelism


def group_of_raw_key(key: Any, max_parallelism: int) -> int:
    """The key group of a key as it comes, not canonical yet. Raises UnsupportedKeyError."""
    # The two commonest keys. The integer's hash is `mix64`, written out: a third of the cost of three calls.
    if type(key) is int and MIN_INT64 <= key <= MAX_INT64:
        z = (key + GAMMA) & MASK64
        z = ((z ^ (z >> 30)) * MIX1) & MASK64
        z = ((z ^ (z >> 27)) * MIX2) & MASK64
        return (z ^ (z >> 31)) % max_parallelism
    if type(key) is str:
        try:
            text = key.encode()
            return xxh3(TEXT_HEADS[len(text)] + text) % max_parallelism
        except (UnicodeEncodeError, IndexError):
            pass  # a lone surrogate; a long text
    return hash_of_key(canonicalize(key)) % max_parallelism


class KeyGroupRange(NamedTuple):
    """Key groups `start` to `end`, both included; empty when end < start."""

    start: int
    end: int

    @property
    def number_of_key_groups(self) -> int:
        """How many key groups the range holds."""
        return max(0, self.end - self.start + 1)

    def holds(self, group: int) -> bool:
        """Whether `group` lies in the range."""
        return self.start <= group <= self.end

    def groups(self) -> range:
        """The key groups in order."""
        return range(self.start, self.end + 1)

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        """The key groups in both ranges; may be empty."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return KeyGroupRange(start, end) if start <= end else EMPTY_KEY_GROUP_RANGE


EMPTY_KEY_GROUP_RANGE: Final = KeyGroupRange(0, -1)


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Raises InvalidParallelismError unless 1 <= parallelism <= max_parallelism <= 32768."""
    _check(max_parallelism, 1, UPPER_BOUND_MAX_PARALLELISM, "max parallelism")
    if not 1 <= parallelism <= max_parallelism:
        raise InvalidParallelismError(
            f"parallelism {parallelism} is outside 1 to the max parallelism {max_parallelism}: lower it, or "
            f"set a higher "
            "max parallelism (which cannot change once state was saved)"
        )


def operator_index_for_key_group(max_parallelism: int, parallelism: int, group: int) -> int:
    """The subtask that owns a key group (Flink's computeOperatorIndexForKeyGroup)."""
    return group * parallelism // max_parallelism


def key_group_range_for_operator_index(max_parallelism: int, parallelism: int, index: int) -> KeyGroupRange:
    """The key groups of a subtask (Flink's computeKeyGroupRangeForOperatorIndex).

    Raises InvalidParallelismError for a parallelism above max parallelism or an index outside the
    parallelism.
    """
    check_parallelism(parallelism, max_parallelism)
    _check(index, 0, parallelism - 1, "subtask index")
    start = (index * max_parallelism + parallelism - 1) // parallelism
    end = ((index + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def _check(value: int, least: int, most: int, what: str) -> None:
    if not least <= value <= most:
        raise InvalidParallelismError(f"{what} {value} is outside {least} to {most}; choose one inside")
