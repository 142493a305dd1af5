"""The scope of a reported metric: names of tasks and of their operators, apart.

Owner: none (pure). Tasks report `<metric>` and `<operator>.<metric>` in one map. The operator's name has the
form of Flink's REST ids, and metric names may contain dots themselves. So only the operators of the vertex
can tell the two apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import msgspec

_NOT_ALPHANUMERIC = re.compile(r"[^a-zA-Z0-9]")


def operator_scope(operator_name: str) -> str:
    """An operator's name in metric ids: characters other than letters and digits become `_`."""
    return _NOT_ALPHANUMERIC.sub("_", operator_name)


class ScopedMetrics(msgspec.Struct, frozen=True):
    """The metrics of one subtask, those of the task and those of each operator (by its own name)."""

    task: Mapping[str, float]
    operators: Mapping[str, Mapping[str, float]]


def split_by_operator(values: Mapping[str, float], operator_names: Iterable[str]) -> ScopedMetrics:
    """Sorts the metrics of a subtask by scope; what fits no operator is the task's."""
    # Longest first: `Map_2.` must not be taken for a metric of an operator whose name is a prefix.
    prefixes = sorted(
        ((f"{operator_scope(name)}.", name) for name in operator_names),
        key=lambda entry: -len(entry[0]),
    )
    task: dict[str, float] = {}
    operators: dict[str, dict[str, float]] = {}
    for metric, value in values.items():
        for prefix, name in prefixes:
            if metric.startswith(prefix) and len(metric) > len(prefix):
                operators.setdefault(name, {})[metric[len(prefix) :]] = value
                break
        else:
            task[metric] = value
    return ScopedMetrics(task, operators)


_LONG_MAX = 2**63 - 1


def metric_text(value: float) -> str:
    """A value as REST writes it: whole numbers without a fraction, within 64 bits as Flink's are."""
    if not math.isfinite(value) or value != int(value) or abs(value) > 2**63:
        return str(value)
    return str(min(int(value), _LONG_MAX))
