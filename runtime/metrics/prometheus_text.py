"""Samples in Prometheus' text format, named and labelled as Flink's reporter does.

Owner: none (pure). Counters and meters are gauges, as they are in Flink; histograms, and the distributions of user
functions, are summaries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from yarrow.runtime.metrics.samples import Sample, Summary

#: Version of the exposition format.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9:_]")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def prometheus_name(scope: str, name: str) -> str:
    """`flink_<scope>_<name>`: characters that Prometheus does not allow become `_`."""
    return _NOT_IN_NAMES.sub("_", f"flink_{scope}_{name}")


def render(samples: Iterable[Sample], filter_label_values: bool = True) -> str:
    """The page that is scraped.

    `filter_label_values` is metrics.reporter.prom.filterLabelValueCharacters: label values lose the
    characters too that names may not have.
    """
    families: dict[str, list[str]] = {}
    # Samples of one subtask share one map of variables, which is written once. The map is kept beside its
    # text: an address may be used again once a map is gone.
    labels: dict[int, tuple[Mapping[str, str], str]] = {}
    for sample in samples:
        family = prometheus_name(sample.scope, sample.name)
        lines = families.get(family)
        if lines is None:
            scope = sample.scope.replace(".", "_")
            help_text = f"{sample.name} (scope: {scope})".translate(_ESCAPES)
            kind = "summary" if isinstance(sample.value, Summary) else "gauge"
            lines = families[family] = [f"# HELP {family} {help_text}", f"# TYPE {family} {kind}"]
        key = id(sample.variables)
        if key not in labels:
            labels[key] = (sample.variables, _labels(sample, filter_label_values))
        if isinstance(sample.value, Summary):
            lines += _summary(family, labels[key][1], sample.value)
        else:
            lines.append(f"{family}{_in_braces(labels[key][1])} {_value(sample.value)}")
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _labels(sample: Sample, filtered: bool) -> str:
    parts = []
    for name, value in sample.variables.items():
        shown = _NOT_IN_NAMES.sub("_", value) if filtered else value.translate(_ESCAPES)
        parts.append(f'{name}="{shown}",')
    return "".join(parts)


def _in_braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _summary(family: str, labels: str, summary: Summary) -> Iterator[str]:
    for share, value in summary.quantiles.items():
        yield f'{family}{{{labels}quantile="{share}",}} {_value(value)}'
    yield f"{family}_sum{_in_braces(labels)} {_value(summary.sum)}"
    yield f"{family}_count{_in_braces(labels)} {_value(summary.count)}"


def _value(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
