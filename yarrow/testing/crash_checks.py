"""check_crashes: crashes a fragment behind each step of a test, restores it, and compares what it emits.

Owner: the test's thread. The fragment runs in the operator harness, so a crash costs milliseconds. Must not know what
the operators do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.data.elements import ArrowBatch, RowBatch
from yarrow.testing.operator_harness import Fragment, OperatorHarness

#: A step of a test: it pushes rows, sends a watermark, or moves the clock.
Step = Callable[[OperatorHarness], object]

#: For each output, how often each row with its timestamp came; rows are shown by their text.
Emitted = list[Counter[tuple[str, int | None]]]


class CrashCheckError(AssertionError):
    """A fragment has emitted other rows over a crash than without one.

    The message names the crash, and rows that are missing or came too often.
    """


def check_crashes(
    fragment: Fragment,
    steps: Sequence[Step],
    *,
    inputs: int = 1,
    types: Sequence[TypeInformation | Any | None] | None = None,
    configuration: dict[str, str] | None = None,
    parallelisms: Sequence[int] = (1, 2, 4),
) -> None:
    """Runs the steps once without a crash, and once with a crash at a barrier behind each step.

    Each crashed run is restored at the next of the parallelisms, takes the other steps, and ends. All runs must emit
    the same rows with the same timestamps, in any order. Raises CrashCheckError if one does not, and
    FragmentFailedError if the fragment fails.
    """

    def begun() -> OperatorHarness:
        return OperatorHarness(fragment, inputs=inputs, types=types, configuration=configuration)

    with begun() as harness:
        for step in steps:
            step(harness)
        harness.finish()
        expected = _emitted(harness)
    for crash in range(len(steps) + 1):
        parallelism = parallelisms[crash % len(parallelisms)]
        with begun() as harness:
            for step in steps[:crash]:
                step(harness)
            snapshot = harness.snapshot()
            before = _emitted(harness)
            # What comes behind the barrier is lost with the crash.
            for step in steps[crash : crash + 1]:
                step(harness)
            with harness.restarted(snapshot, parallelism=parallelism) as again:
                for step in steps[crash:]:
                    step(again)
                again.finish()
                found = [first + second for first, second in zip(before, _emitted(again), strict=True)]
        _compare(expected, found, f"a crash behind step {crash} of {len(steps)}, restored at {parallelism}")


def _compare(expected: Emitted, found: Emitted, crash: str) -> None:
    for index, (wanted, came) in enumerate(zip(expected, found, strict=True)):
        missing, surplus = wanted - came, came - wanted
        if missing or surplus:
            raise CrashCheckError(
                f"{crash}: output {index} lacks {_shown(missing)} and has {_shown(surplus)} too often"
            )


def _shown(rows: Counter[tuple[str, int | None]]) -> str:
    first = [f"{row} at {stamp}" for row, stamp in list(rows.elements())[:10]]
    more = rows.total() - len(first)
    return f"{', '.join(first) or 'nothing'}{f' and {more} more' if more > 0 else ''}"


def _emitted(harness: OperatorHarness) -> Emitted:
    emitted: Emitted = []
    for index in range(harness.number_of_outputs):
        rows: Counter[tuple[str, int | None]] = Counter()
        for element in harness.elements(index):
            if isinstance(element, RowBatch):
                stamps = element.timestamps or [None] * len(element.rows)
                rows.update((repr(row), stamp) for row, stamp in zip(element.rows, stamps, strict=True))
            elif isinstance(element, ArrowBatch):
                times = element.timestamps
                stamps = [None] * len(element) if times is None else times.to_pylist()
                shown = map(repr, element.batch.to_pylist())
                rows.update(zip(shown, stamps, strict=True))
        emitted.append(rows)
    return emitted
