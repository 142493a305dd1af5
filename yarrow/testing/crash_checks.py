"""check_crashes: crashes a fragment behind each step of a test, restores it, and compares what it emits.

Owner: the test's thread. The fragment runs in the operator harness, so a crash costs milliseconds. Must not know what
the operators do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.data.elements import ArrowBatch, RowBatch, StreamElement
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

    A crashed run takes one step more behind the barrier, before its state is written. Then it crashes, and that step is
    lost. It is restored at the next of the parallelisms, takes the other steps, and ends. All runs must emit
    the same rows with the same timestamps, in any order. Raises CrashCheckError if one does not, and
    FragmentFailedError if the fragment fails.
    """

    def begun() -> OperatorHarness:
        return OperatorHarness(fragment, inputs=inputs, types=types, configuration=configuration)

    with begun() as harness:
        for step in steps:
            step(harness)
        harness.finish()
        expected = _emitted(harness, OperatorHarness.elements)
    for crash in range(len(steps) + 1):
        parallelism = parallelisms[crash % len(parallelisms)]
        with begun() as harness:
            for step in steps[:crash]:
                step(harness)
            lost = [partial(_go_on, harness, step) for step in steps[crash : crash + 1]]
            snapshot = harness.snapshot(*lost)
            before = _emitted(harness, OperatorHarness.before_cut)
            with harness.restarted(snapshot, parallelism=parallelism) as again:
                for step in steps[crash:]:
                    step(again)
                again.finish()
                behind_crash = _emitted(again, OperatorHarness.elements)
                found = [first + second for first, second in zip(before, behind_crash, strict=True)]
        _compare(expected, found, f"a crash behind step {crash} of {len(steps)}, restored at {parallelism}")


def _go_on(harness: OperatorHarness, step: Step) -> None:
    """Takes a step that the crash loses; the clock is then set back.

    The restored run begins at the clock of the cut, which has to say what of the written state has expired.
    """
    began = harness.clock.monotonic()
    step(harness)
    harness.clock.advance(began - harness.clock.monotonic())


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


def _emitted(
    harness: OperatorHarness, elements: Callable[[OperatorHarness, int], list[StreamElement]]
) -> Emitted:
    """The rows among the elements of each output."""
    emitted: Emitted = []
    for index in range(harness.number_of_outputs):
        rows: Counter[tuple[str, int | None]] = Counter()
        for element in elements(harness, index):
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
