"""Hashes of many inputs by numpy: splitmix64 of numbers, xxh3_64 (seed 0) of bytes.

Both are the hashes that `key_groups.mix64` and `xxhash` give one by one. XXH3 is computed as specified for 17 to 64
bytes, a lane of 64 bits at a time.
Owner: the calling thread; no state. It must not know what is hashed, nor import pyarrow: state of rows is hashed here.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from yarrow.runtime.data.key_groups import GAMMA, MIX1, MIX2

_Lanes = npt.NDArray[np.uint64]

#: Lengths in bytes that are hashed by numpy.
LEAST_LENGTH: Final = 17
MOST_LENGTH: Final = 64

#: The first 64 bytes of XXH3's default secret, as little-endian words.
_SECRET: Final = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    ),
    "<u8",
)
_PRIME64_1: Final = 0x9E3779B185EBCA87
_AVALANCHE: Final = np.uint64(0x165667919E3779F9)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def mix64_array(payload: _Lanes) -> _Lanes:
    """splitmix64 of each payload, uint64, shape (rows,) as given; the same as key_groups.mix64."""
    # In place: a new array for each step costs as much as the step.
    z = payload + np.uint64(GAMMA)
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(MIX1)
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= np.uint64(MIX2)
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    return z


def xxh3_64_array(inputs: npt.NDArray[Any]) -> _Lanes:
    """The hash of each element of `inputs`, shape (n,), dtype of 17 to 64 bytes, hashed as its bytes."""
    length = inputs.dtype.itemsize
    if not LEAST_LENGTH <= length <= MOST_LENGTH:
        raise ValueError(f"inputs of {length} bytes; numpy hashes {LEAST_LENGTH} to {MOST_LENGTH}")
    if not len(inputs):
        return np.zeros(0, np.uint64)
    found = np.full(len(inputs), length * _PRIME64_1 & 0xFFFFFFFFFFFFFFFF, np.uint64)
    # From both ends inwards, 16 bytes a step, each pair of steps with the next four words of the secret.
    for step in range((length - 1) // 32 + 1):
        found += _mixed(inputs, 16 * step, 4 * step)
        found += _mixed(inputs, length - 16 * (step + 1), 4 * step + 2)
    found ^= found >> np.uint64(37)
    found *= _AVALANCHE
    found ^= found >> _HALF
    return found


def _mixed(inputs: npt.NDArray[Any], offset: int, word: int) -> _Lanes:
    """Both halves of the 128-bit product of 16 bytes at `offset` with two words of the secret, folded together."""
    one = _lane(inputs, offset) ^ _SECRET[word]
    other = _lane(inputs, offset + 8) ^ _SECRET[word + 1]
    one_low, one_high = one & _LOW, one >> _HALF
    other_low, other_high = other & _LOW, other >> _HALF
    low = one_low * other_low
    # At most 2**64 - 1: a product of halves, and the upper half of another.
    first = one_high * other_low
    first += low >> _HALF
    second = one_low * other_high
    second += first & _LOW
    high: _Lanes = one_high * other_high
    high += first >> _HALF
    high += second >> _HALF
    one *= other
    high ^= one
    return high


def _lane(inputs: npt.NDArray[Any], offset: int) -> _Lanes:
    """The 8 bytes at `offset` of each input, read as a little-endian word."""
    lanes: _Lanes = np.ndarray(
        (len(inputs),), "<u8", buffer=inputs.data, offset=offset, strides=(inputs.dtype.itemsize,)
    ).astype(np.uint64)
    return lanes
