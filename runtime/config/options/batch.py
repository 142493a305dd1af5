"""Options of jobs in batch mode, which run on Spark.

Owner: any thread; declarations only. Nothing here reads a value. Settings of Spark keep Spark's keys.
Those that are declared here have a default or a check of ours. All other `spark.*` keys are passed on.
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.common.values.value_types import (
    BOOLEAN,
    FILE_SYSTEM_PATH,
    POSITIVE,
    STRING,
    ValueType,
    duration,
    enum_of,
    memory_size,
)
from yarrow.runtime.config.values.option import option, optional

#: `spark.master` of executors in an application on YARN.
YARN: Final = "yarn"

SPARK_MASTER: Final = optional(
    "spark.master",
    STRING,
    "Where Spark runs the tasks of a job in batch mode. `local[4]`: in the driver. `spark://host:7077`: in executors"
    " of a standalone Spark. `local-cluster[2,1,1024]`: in executors on the driver's host. `yarn`: in executors of an"
    " application of their own on YARN.",
    unset="`local[n]`, n: the parallelism of the widest vertex, or the slots of the standalone TaskExecutor",
)
SPARK_DRIVER_MEMORY: Final = option(
    "spark.driver.memory",
    memory_size("1 gb", MemorySize.of_mebi_bytes(512)),
    "1 gb",
    "The heap of Spark's driver. With a local master it runs all tasks; their Python processes need memory"
    " besides it.",
)
SPARK_EXECUTOR_MEMORY: Final = option(
    "spark.executor.memory",
    memory_size("1 gb", MemorySize.of_mebi_bytes(450)),
    "1 gb",
    "The heap of an executor of Spark. On YARN its container also has Java's own memory, and 512 MiB for the Python"
    " process of each core; `spark.executor.memoryOverhead` sets both.",
)
SPARK_EXECUTOR_CORES: Final = optional(
    "spark.executor.cores",
    POSITIVE,
    "Tasks that run at a time in an executor of Spark.",
    unset="on YARN `taskmanager.numberOfTaskSlots`, else Spark's own default",
)
SPARK_UI_ENABLED: Final = option(
    "spark.ui.enabled",
    BOOLEAN,
    "true",
    "Whether REST shows Spark's own web pages about a running job in batch mode. They start when somebody looks first.",
)
SPARK_START_TIMEOUT: Final = option(
    "execution.batch.spark.start-timeout",
    duration("s", "2 min", Duration.of_seconds(1)),
    "2 min",
    "How long the start of Spark may take before the job fails.",
)
LONGEST_STAGE: Final = option(
    "execution.batch.longest-stage",
    duration("s", "10 min", Duration.of_seconds(1)),
    "10 min",
    "How long the longest stage of a job in batch mode may take. A sink's transaction is open until the job's commit."
    " A sink is refused at its start if its transactions may not be open so long.",
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
    "Whether Java compiles hot code with its second compiler too, and collects garbage on all cores (G1). That is"
    " slower for Python functions, and faster for much data in Spark SQL.",
    unset="`true` where Spark SQL reads files of 64 MiB or more, else `false`",
)
PIPELINE_DIRECTORY: Final = optional(
    "execution.batch.pipeline-directory",
    FILE_SYSTEM_PATH,
    "Where stages of a pipeline leave their temporary outputs for other stages. In a folder that all hosts share, they"
    " outlive a lost SparkDriver wherever the next one starts.",
    unset="below `high-availability.storageDir`, else in the folder of an embedded cluster, else the first of"
    " `io.tmp.dirs`",
)


class HistoryOutput(enum.Enum):
    """What becomes of the rows that operators emit while they read history."""

    SINK = "SINK"
    DROP = "DROP"


class HistoryEnd(msgspec.Struct, frozen=True):
    """Where the history of a stream ends."""

    #: Epoch ms of the first record that is left to the stream; None = history is all that there is now.
    time_ms: int | None

    @staticmethod
    def parse(text: str) -> HistoryEnd:
        """Reads `NOW`, or an ISO 8601 date or time; one without a zone is UTC."""
        if text.strip().upper() == "NOW":
            return HistoryEnd(None)
        time = datetime.fromisoformat(text.strip())
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return HistoryEnd((time - _EPOCH) // timedelta(milliseconds=1))

    def __str__(self) -> str:
        if self.time_ms is None:
            return "NOW"
        return (_EPOCH + timedelta(milliseconds=self.time_ms)).isoformat()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

HISTORY_UNTIL: Final = optional(
    "execution.history.until",
    ValueType(
        "Time",
        "NOW, or an ISO 8601 time such as 2013-12-01T00:00:00Z; without a zone it is UTC",
        "2013-12-01T00:00:00Z",
        HistoryEnd.parse,
        str,
    ),
    "Runs the job twice. First in batch mode on Spark over the history of its sources, whose state becomes a savepoint."
    " Then as a stream from that savepoint, which reads the next record first. History ends before the first record of"
    " a split with this event time, or with what there is `NOW`.",
    unset="the job reads all its input as a stream",
)
HISTORY_SAVEPOINT_PATH: Final = optional(
    "execution.history.savepoint-path",
    FILE_SYSTEM_PATH,
    "The new folder of the savepoint that a job makes of the history of its sources.",
    unset="a new folder below `execution.checkpointing.savepoint-dir`",
)
HISTORY_OUTPUT: Final = option(
    "execution.history.output",
    enum_of(HistoryOutput),
    "SINK",
    "What becomes of the rows that operators emit while they read history: `SINK` sends them to the job's sinks, `DROP`"
    " counts and drops them.",
)
HISTORY_START_STREAM: Final = option(
    "execution.history.start-stream",
    BOOLEAN,
    "true",
    "Whether the stream starts when the savepoint of history is there; `false` leaves that to `yarrow run -s`.",
)
