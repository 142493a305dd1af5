"""Metrics that user functions register: the names that programs import.

Owner: none. The interfaces stand in `yarrow.common.metrics`; RuntimeContext.get_metrics_group gives a MetricGroup.
"""

from yarrow.common.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
