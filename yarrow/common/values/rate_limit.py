"""RateLimit: the most rows and bytes a second that a source reads or a sink writes.

Owner: none (frozen values). Specs carry the limit of the whole job, and subtasks get shares of it.
"""

from __future__ import annotations

from math import isfinite

import msgspec


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit. None = any number of rows, or of bytes."""

    rows_per_second: float | None = None
    bytes_per_second: float | None = None

    @property
    def limits_something(self) -> bool:
        """Whether there is any bound."""
        return self.rows_per_second is not None or self.bytes_per_second is not None

    def share_of(self, subtasks: int) -> RateLimit:
        """Return an equal share of so many subtasks; 0 subtasks stand for nobody, whose share is nothing."""

        def part(whole: float | None) -> float | None:
            return None if whole is None else whole / subtasks if subtasks else 0.0

        return RateLimit(
            rows_per_second=part(self.rows_per_second), bytes_per_second=part(self.bytes_per_second)
        )


#: No bound at all.
UNLIMITED = RateLimit()


def checked_limit(rows_per_second: object, bytes_per_second: object) -> RateLimit:
    """Return the limit of these numbers, of which each may be None.

    Raises ValueError, with the name of the number, for one that is not above 0 or not finite.
    """
    for name, value in (("rows_per_second", rows_per_second), ("bytes_per_second", bytes_per_second)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and isfinite(value) and value > 0):  # type: ignore[arg-type, operator]
            raise ValueError(
                f"rate limit: {name} must be a number above 0, not {value!r}; leave it out for no limit"
            )
    return RateLimit(
        rows_per_second=None if rows_per_second is None else float(rows_per_second),  # type: ignore[arg-type]
        bytes_per_second=None if bytes_per_second is None else float(bytes_per_second),  # type: ignore[arg-type]
    )
