"""Rows and a check for patterns that leave out rows, of streams of rows and of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.harness.crashed_runs import TimedStep, feed, outputs_over_a_crash
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream import DataStream
from yarrow.datastream.connectors import DeadLetter
from yarrow.testing.operator_harness import OperatorHarness

#: A key, a letter and a number of its own. The letter "x" fails a condition.
Row = tuple[str, str, int]

#: Key, letter, time, and the watermark behind the row (None = none).
DRAWN_ROWS = st.lists(
    st.tuples(
        st.sampled_from("kl"), st.sampled_from("aabbcx"), st.integers(0, 40), st.none() | st.integers(0, 40)
    ),
    max_size=12,
)


class FailingPattern(NamedTuple):
    """A pattern at whose first condition rows fail."""

    #: The results and the letters.
    guarded: Callable[[DataStream], Any]
    #: The results without `on_error`.
    plain: Callable[[DataStream], Any]
    row_type: TypeInformation
    #: The rows in letters.
    rows_of: Callable[[list[DeadLetter]], list[Row]]

    def check_failing_rows(self, drawn: Sequence[Any], cut: int, backend: str) -> None:
        """The rows that fail leave as letters, once over a crash, and matches are those of the other rows."""
        steps: list[TimedStep] = [
            ((key, letter, at), time, watermark) for at, (key, letter, time, watermark) in enumerate(drawn)
        ]
        found = outputs_over_a_crash(self.guarded, self.row_type, steps, cut, backend, outputs=2)
        failed = self.rows_of(found[1])
        assert len(set(failed)) == len(failed) and all(row[1] == "x" for row in failed)
        # The rows that are not late have failed: the pattern begins with a condition that does.
        reached, due = -1, set[Row]()
        for row, time, watermark in steps:
            if time > reached and row[1] == "x":
                due.add(row)
            reached = reached if watermark is None else max(reached, watermark)
        assert set(failed) == due
        good = [(None if row[1] == "x" else row, time, watermark) for row, time, watermark in steps]
        configuration = {"state.backend.type": backend}
        with OperatorHarness(self.plain, types=[self.row_type], configuration=configuration) as harness:
            feed(harness, good, -1)
            harness.watermark(1000)
            harness.run()
            assert sorted(found[0]) == sorted(harness.output)
