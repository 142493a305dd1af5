"""The names of `yarrow.metrics` under the module that PyFlink defines them in.

Owner: none. Holds nothing of its own.
"""

from yarrow.common.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
