"""Options of a program's execution, with Flink's keys and defaults, as ExecutionConfig reads and writes them.

Constants alone. Options that only the cluster reads are declared in the runtime.
"""

from __future__ import annotations

from yarrow.common.config_options import ConfigOptions
from yarrow.common.time import Duration

AUTO_GENERATE_UIDS = (
    ConfigOptions.key("pipeline.auto-generate-uids")
    .boolean_type()
    .default_value(True)
    .with_description("Whether operators without a uid get one from their place in the graph.")
)
AUTO_WATERMARK_INTERVAL = (
    ConfigOptions.key("pipeline.auto-watermark-interval")
    .duration_type()
    .default_value(Duration.of_millis(200))
    .with_description("How often watermark generators are asked for a watermark; 0 asks never.")
)
CLOSURE_CLEANER_LEVEL = (
    ConfigOptions.key("pipeline.closure-cleaner-level")
    .string_type()
    .default_value("RECURSIVE")
    .with_description("How closures of Java are cleaned; without effect.")
)
FORCE_AVRO = (
    ConfigOptions.key("pipeline.force-avro")
    .boolean_type()
    .default_value(False)
    .with_description("Whether Java's objects are serialized by Avro; without effect.")
)
FORCE_KRYO = (
    ConfigOptions.key("pipeline.force-kryo")
    .boolean_type()
    .default_value(False)
    .with_description("Whether Java's objects are serialized by Kryo; without effect.")
)
GENERIC_TYPES = (
    ConfigOptions.key("pipeline.generic-types")
    .boolean_type()
    .default_value(True)
    .with_description("Whether values of undeclared type are pickled; otherwise such a stream is refused.")
)
GLOBAL_JOB_PARAMETERS = (
    ConfigOptions.key("pipeline.global-job-parameters")
    .map_type()
    .no_default_value()
    .with_description("Parameters that every function reads by RuntimeContext.get_job_parameter.")
)
LATENCY_INTERVAL = (
    ConfigOptions.key("metrics.latency.interval")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("How often sources send latency markers; 0 sends none.")
)
MAX_PARALLELISM = (
    ConfigOptions.key("pipeline.max-parallelism")
    .int_type()
    .default_value(-1)
    .with_description(
        "The number of key groups, which bounds the parallelism; -1 derives it from the parallelism."
    )
)
OBJECT_REUSE = (
    ConfigOptions.key("pipeline.object-reuse")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether mutable values pass by reference, so that functions must not change what they emitted."
    )
)
PARALLELISM = (
    ConfigOptions.key("parallelism.default")
    .int_type()
    .default_value(1)
    .with_description("The parallelism of operators that set none.")
)
SNAPSHOT_COMPRESSION = (
    ConfigOptions.key("execution.checkpointing.snapshot-compression")
    .boolean_type()
    .default_value(False)
    .with_description("Whether the state in checkpoints and savepoints is compressed.")
)
TASK_CANCELLATION_INTERVAL = (
    ConfigOptions.key("task.cancellation.interval")
    .duration_type()
    .default_value(Duration.of_millis(30_000))
    .with_description("The time between two attempts to cancel a task that does not end.")
)
TASK_CANCELLATION_TIMEOUT = (
    ConfigOptions.key("task.cancellation.timeout")
    .duration_type()
    .default_value(Duration.of_millis(180_000))
    .with_description("The time after which a worker whose task does not end is killed; 0 waits for ever.")
)
