"""Options of jobs in batch mode, which run on Spark.

Owner: any thread; declarations only. Nothing here reads a value. Settings of Spark keep Spark's keys.
Those that are declared here have a default or a check of ours. All other `spark.*` keys are passed on.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.common.values.value_types import BOOLEAN, STRING, duration, memory_size
from yarrow.runtime.config.values.option import option, optional

SPARK_MASTER: Final = optional(
    "spark.master",
    STRING,
    "Where Spark runs the tasks of a job in batch mode. `local[4]`: in the driver. `spark://host:7077`: in executors"
    " of a standalone Spark. `local-cluster[2,1,1024]`: in executors on the driver's host.",
    unset="`local[n]`, n: the parallelism of the widest vertex, or the slots of the standalone TaskExecutor",
)
SPARK_DRIVER_MEMORY: Final = option(
    "spark.driver.memory",
    memory_size("1 gb", MemorySize.of_mebi_bytes(512)),
    "1 gb",
    "The heap of Spark's driver. With a local master it runs all tasks; their Python processes need memory"
    " besides it.",
)
SPARK_UI_ENABLED: Final = option(
    "spark.ui.enabled",
    BOOLEAN,
    "false",
    "Whether Spark serves its own web pages while a job in batch mode runs, on the loopback address.",
)
SPARK_START_TIMEOUT: Final = option(
    "execution.batch.spark.start-timeout",
    duration("s", "2 min", Duration.of_seconds(1)),
    "2 min",
    "How long the start of Spark may take before the job fails.",
)
SPARK_SQL: Final = option(
    "execution.batch.spark.sql",
    BOOLEAN,
    "true",
    "Whether Spark SQL reads Parquet files and computes built-in aggregates of their columns in batch mode, where its"
    " results are exactly those of the operators. The plan shows where.",
)
SPARK_FULL_COMPILER: Final = optional(
    "execution.batch.spark.full-compiler",
    BOOLEAN,
    "Whether Java compiles hot code with its second compiler too: slower for Python functions, faster for much data in"
    " Spark SQL.",
    unset="`true` where Spark SQL reads files of 64 MiB or more, else `false`",
)
