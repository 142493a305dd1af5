"""WantedColumns: what the operators behind a source of columns need of its rows.

Owner: none (frozen values). The planner of the job graph fills it in, and readers may leave out the rest. Must not
evaluate anything, nor import pyarrow.
"""

from __future__ import annotations

import msgspec

from yarrow.common.values.conditions import AnyCondition


class WantedColumns(msgspec.Struct, frozen=True):
    """Columns that somebody reads, and a condition on rows. A reader may give more of both."""

    #: The names of these columns; None = all.
    columns: tuple[str, ...] | None = None
    #: Rows for which it is false or null are dropped by operators behind the source; None = all rows are kept.
    condition: AnyCondition | None = None

    def __bool__(self) -> bool:
        """Whether a reader may leave something out."""
        return self.columns is not None or self.condition is not None

    def __str__(self) -> str:
        """The text for plans: what is left out; "" = nothing."""
        parts = []
        if self.columns is not None:
            parts.append(f"decodes the columns {', '.join(self.columns)} alone")
        if self.condition is not None:
            parts.append("leaves out row groups in which no row can meet the filters, by their statistics")
        return "; ".join(parts)
