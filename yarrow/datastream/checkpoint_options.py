"""Options of checkpointing, with Flink's keys and defaults, as CheckpointConfig reads and writes them.

Constants alone.
"""

from __future__ import annotations

from yarrow.common.config_options import ConfigOptions
from yarrow.common.time import Duration
from yarrow.datastream.checkpointing_mode import CheckpointingMode
from yarrow.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention

ALIGNED_TIMEOUT = (
    ConfigOptions.key("execution.checkpointing.aligned-checkpoint-timeout")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_fallback_keys("execution.checkpointing.alignment-timeout")
    .with_description(
        "How long a checkpoint stays aligned before its barriers overtake records; 0 overtakes at once."
    )
)
FORCE_UNALIGNED = (
    ConfigOptions.key("execution.checkpointing.unaligned.forced")
    .boolean_type()
    .default_value(False)
    .with_description("Whether checkpoints are unaligned even where the graph has a feedback edge.")
)
INTERVAL = (
    ConfigOptions.key("execution.checkpointing.interval")
    .duration_type()
    .no_default_value()
    .with_description("The time between the starts of two checkpoints; without it there are none.")
)
MAX_CONCURRENT = (
    ConfigOptions.key("execution.checkpointing.max-concurrent-checkpoints")
    .int_type()
    .default_value(1)
    .with_description("How many checkpoints may be in progress at once.")
)
MIN_PAUSE = (
    ConfigOptions.key("execution.checkpointing.min-pause")
    .duration_type()
    .default_value(Duration.of_millis(0))
    .with_description("The least time between the end of a checkpoint and the start of the next.")
)
MODE = (
    ConfigOptions.key("execution.checkpointing.mode")
    .enum_type(CheckpointingMode)
    .default_value(CheckpointingMode.EXACTLY_ONCE)
    .with_description("How often a record counts in the state after a failure.")
)
RETENTION = (
    ConfigOptions.key("execution.checkpointing.externalized-checkpoint-retention")
    .enum_type(ExternalizedCheckpointRetention)
    .default_value(ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)
    .with_description("What becomes of checkpoints when the job is cancelled.")
)
TIMEOUT = (
    ConfigOptions.key("execution.checkpointing.timeout")
    .duration_type()
    .default_value(Duration.of_minutes(10))
    .with_description("The time after which a checkpoint that has not ended is given up.")
)
TOLERABLE_FAILURES = (
    ConfigOptions.key("execution.checkpointing.tolerable-failed-checkpoints")
    .int_type()
    .default_value(0)
    .with_description("How many checkpoints in a row may fail before the job does.")
)
UNALIGNED = (
    ConfigOptions.key("execution.checkpointing.unaligned.enabled")
    .boolean_type()
    .default_value(False)
    .with_fallback_keys("execution.checkpointing.unaligned")
    .with_description("Whether barriers may overtake records, which are then part of the checkpoint.")
)
