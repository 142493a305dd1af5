"""Pseudo-random generators: each owner has its own, never the shared one of `random`.

Owner: the caller that requested the generator. The engine never touches user code's own `random`.
"""

from __future__ import annotations

import os
import random
from typing import Final

#: A pause is shortened by chance, at most to this share.
_LEAST_SHARE: Final = 0.5


def new_generator(seed: int | None = None) -> random.Random:
    """A new generator, seeded from the system unless a seed is given (tests, replay)."""
    return random.Random(int.from_bytes(os.urandom(16), "little") if seed is None else seed)


def shortened(seconds: float, generator: random.Random) -> float:
    """A pause that chance has shortened, at most to the half: those that failed together try again one by one."""
    return seconds * generator.uniform(_LEAST_SHARE, 1.0)
