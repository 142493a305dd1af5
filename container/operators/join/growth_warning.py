"""GrowthWarning: warns of a join that gathers rows while its event time stands, and names who holds event time back.

Owner: the task thread. Must not know rows, nor how a join counts them.
"""

from __future__ import annotations

import logging
from typing import Final

from yarrow.container.operators.base import OperatorContext, TimeHolder
from yarrow.container.operators.join.growth_watch import GrowthWatch
from yarrow.runtime.data.elements import MIN_TIMESTAMP

#: Seconds between two looks at the growth.
LOOK_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


class GrowthWarning:
    """The warning of one subtask."""

    def __init__(self, context: OperatorContext) -> None:
        self._operator = context.descriptor.name
        self._clock = context.environment.clock
        self._watch = GrowthWatch()
        self._next_look = self._clock.monotonic() + LOOK_SECONDS
        #: A bounded input ends, and all rows leave with it.
        self._is_on = not context.environment.bounded

    def end(self) -> None:
        """The input has ended: no row comes any more."""
        self._is_on = False

    def seconds_until_look(self) -> float | None:
        """Seconds until `look` has something to do; None = it never has."""
        return self._next_look - self._clock.monotonic() if self._is_on else None

    def look(self, watermark: int, holder: TimeHolder | None, left: int, right: int) -> None:
        """Warns when the rows of both sides have grown while event time stands; `holder` is who holds it back."""
        now = self._clock.monotonic()
        self._next_look = now + LOOK_SECONDS
        growth = self._watch.look(now, watermark, left + right)
        if growth is None:
            return
        stands = "has not begun" if watermark == MIN_TIMESTAMP else f"stands at {watermark}"
        _log.warning(
            "operator '%s': event time %s since %d s, and the join has grown from %d to %d rows (left %d, right %d)."
            " No row can leave. %s",
            self._operator,
            stands,
            growth.seconds,
            growth.before,
            growth.now,
            left,
            right,
            _blame(holder),
        )


def _blame(holder: TimeHolder | None) -> str:
    if holder is None:
        return "All inputs are idle."
    reached = "no watermark" if holder.watermark == MIN_TIMESTAMP else f"the watermark {holder.watermark}"
    return (
        f"The {'second' if holder.input else 'first'} stream holds it back: {reached} has come from"
        f" {holder.producer or 'its producer'}. If that has no records, give its source with_idleness."
    )
