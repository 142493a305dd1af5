"""How long a test that waits for a condition pauses between two looks. Pure.

A look takes the time of the one who looks and of those whom it asks: REST, Hadoop's daemons, or a command that has to
start first. Other tests run on the same cores, and so does what is waited for. So the longer looks take, the longer are
the pauses.
"""

from __future__ import annotations

from typing import Final

#: Seconds between two looks, the least and the most.
LEAST: Final = 0.01
MOST: Final = 1.0
#: A test that waits looks for a quarter of its time at the most, up to looks of a third of a second.
PAUSES_PER_LOOK: Final = 3.0


def pause_behind(look_seconds: float) -> float:
    """Seconds to pause after a look that took `look_seconds`."""
    return min(MOST, max(LEAST, PAUSES_PER_LOOK * look_seconds))
