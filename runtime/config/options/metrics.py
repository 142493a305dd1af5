"""Options of metrics and latency tracking.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.value_types import (
    BOOLEAN,
    DURATION,
    PORT_RANGE,
    POSITIVE,
    STRING,
    enum_of,
    list_of,
)
from yarrow.runtime.config.values.option import option, optional


class LatencyGranularity(enum.Enum):
    """The sources that latency histograms tell apart."""

    SINGLE = "single"
    OPERATOR = "operator"
    SUBTASK = "subtask"


REPORTERS: Final = optional(
    "metrics.reporters",
    list_of(STRING, ",;", "prom"),
    "Names of the reporters to start.",
    unset="every reporter that is configured",
)
LATENCY_INTERVAL: Final = option(
    "metrics.latency.interval",
    DURATION,
    "0 ms",
    "How often sources send latency markers; 0: never.",
)
LATENCY_GRANULARITY: Final = option(
    "metrics.latency.granularity",
    enum_of(LatencyGranularity),
    "operator",
    "How finely latency tells sources apart.",
)
LATENCY_HISTORY_SIZE: Final = option(
    "metrics.latency.history-size",
    POSITIVE,
    "128",
    "Latencies that a histogram remembers.",
)
FETCHER_UPDATE_INTERVAL: Final = option(
    "metrics.fetcher.update-interval",
    DURATION,
    "10 s",
    "Age at which metrics that REST serves are fetched anew; 0: they are not fetched.",
    no_effect="workers report about once a second, and REST shows the last report",
)
PROMETHEUS_FACTORY: Final = optional(
    "metrics.reporter.prom.factory.class",
    STRING,
    "Flink's way to switch the Prometheus endpoint on; any value does.",
    unset="on when `metrics.reporter.prom.port` is set",
)
PROMETHEUS_PORT: Final = option(
    "metrics.reporter.prom.port",
    PORT_RANGE,
    "9249",
    "The port, or the range to choose from, of the Prometheus endpoint.",
)
PROMETHEUS_HOST: Final = optional(
    "metrics.reporter.prom.host",
    STRING,
    "The local address of the Prometheus endpoint.",
    unset="all addresses",
)
PROMETHEUS_FILTER_LABELS: Final = option(
    "metrics.reporter.prom.filterLabelValueCharacters",
    BOOLEAN,
    "true",
    "Whether characters that Prometheus does not allow in names are replaced in label values too.",
)
