"""Where pseudo-random numbers come from: a generator for each owner, never the shared one of `random`.

Owner: whoever asked for the generator. User code's own `random` stays untouched by the engine.
"""

from __future__ import annotations

import os
import random


def new_generator(seed: int | None = None) -> random.Random:
    """A generator of its own, seeded from the system unless a seed is given (tests, replay)."""
    return random.Random(int.from_bytes(os.urandom(16), "little") if seed is None else seed)
