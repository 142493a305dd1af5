"""Options by which Spark runs speculative copies of tasks, as soon as it can."""

from __future__ import annotations

from typing import Final

#: Spark copies a task as soon as the other one has finished.
SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
