"""The text of a comparison: sink by sink, with the first key that differs, both results and their causes.

Owner: the main thread; pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from yarrow.cli.verification.comparison import KeyDifference, SinkComparison


@dataclass(frozen=True)
class SinkReport:
    """The result for one sink, with the causes of a difference."""

    name: str
    comparison: SinkComparison
    causes: Sequence[str] = field(default_factory=tuple)
    #: The keys are those that a key selector tells of the results.
    is_key_of_results: bool = False


@dataclass(frozen=True)
class ModesReport:
    """The result for a job."""

    job_name: str
    #: Spark's id of the application that ran it in BATCH.
    spark_application: str
    sinks: Sequence[SinkReport]

    @property
    def is_equal(self) -> bool:
        """True if the modes agree in all sinks."""
        return all(sink.comparison.is_equal for sink in self.sinks)


def text_of(report: ModesReport) -> str:
    """The report for people."""
    lines = [f"Job '{report.job_name}', in STREAMING and in BATCH (Spark {report.spark_application}):"]
    for sink in report.sinks:
        lines += _sink_lines(sink)
    different = sum(not sink.comparison.is_equal for sink in report.sinks)
    if different:
        lines.append(f"The modes differ in {different} of {_counted(len(report.sinks), 'sink')}.")
    else:
        lines.append("The modes are equal.")
    lines[-1] += " The first job alone was compared."
    return "\n".join(lines)


def _sink_lines(sink: SinkReport) -> Iterator[str]:
    streaming, batch = sink.comparison.rows
    first = sink.comparison.first
    if first is None:
        yield f"  {sink.name}: equal, {_counted(batch, 'row')}"
        return
    what = "row" if first.is_row else "key"
    yield (
        f"  {sink.name}: differs, {_counted(streaming, 'row')} in STREAMING, {batch} in BATCH,"
        f" {_counted(sink.comparison.differing_keys, what)} of both differ"
    )
    yield from _difference_lines(
        first, "first key, by its selector on the results" if sink.is_key_of_results else "first key"
    )
    for cause in sink.causes:
        yield f"    cause: {cause}"


def _difference_lines(first: KeyDifference, key: str) -> Iterator[str]:
    if first.is_row:
        yield "    rows that only one mode has:"
    else:
        yield f"    {key}: {first.key_text}"
    for mode, rows, missing in (
        ("STREAMING", first.only_streaming, first.missing[0]),
        ("BATCH", first.only_batch, first.missing[1]),
    ):
        for row in rows:
            yield f"      {mode}: {row}"
        if not rows:
            yield f"      {mode}: none"
        elif missing > len(rows):
            yield f"      {mode}: {missing - len(rows)} more"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
