"""CheckpointConfig: when and how checkpoints are made, as methods over a Configuration.

A view owned by the thread that builds the job: what is set here is set in the Configuration and the other way
round. Times are in milliseconds. The checkpoint coordinator, not this module, makes checkpoints.
"""

from __future__ import annotations

from typing import TypeVar

from yarrow.common.config_options import ConfigOption
from yarrow.common.configuration import Configuration
from yarrow.common.time import Duration, Time, milliseconds_of
from yarrow.datastream import checkpoint_options as options
from yarrow.datastream.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage
from yarrow.datastream.checkpointing_mode import CheckpointingMode
from yarrow.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from yarrow.datastream.fault_tolerance import set_storage

__all__ = ["CheckpointConfig"]

T = TypeVar("T")

#: The shortest interval: below it a job would do little else.
_SHORTEST_INTERVAL = 10
#: As many failures as a 32-bit count can say: none of them fails the job.
_UNLIMITED_FAILURES = (1 << 31) - 1


class CheckpointConfig:
    """Settings of checkpointing. Setters return the object for chaining."""

    DEFAULT_TIMEOUT = 10 * 60 * 1000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = 1
    DEFAULT_MODE = CheckpointingMode.EXACTLY_ONCE

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        self._storage: CheckpointStorage | None = None

    def is_checkpointing_enabled(self) -> bool:
        """Whether an interval is set."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return how often a record counts in the state after a failure."""
        return self._value(options.MODE)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set how often a record counts in the state after a failure."""
        return self._set(options.MODE, checkpointing_mode)

    def get_checkpoint_interval(self) -> int:
        """Return the time between the starts of two checkpoints in ms, or -1 when there are none."""
        interval = self._configuration.get(options.INTERVAL)
        return -1 if interval is None else interval.to_millis()

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the time between the starts of two checkpoints. Raises ValueError below 10 ms."""
        return self._set_millis(options.INTERVAL, checkpoint_interval, _SHORTEST_INTERVAL)

    def get_checkpoint_timeout(self) -> int:
        """Return the time after which a checkpoint is given up, in ms."""
        return self._value(options.TIMEOUT).to_millis()

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the time after which a checkpoint is given up. Raises ValueError below 10 ms."""
        return self._set_millis(options.TIMEOUT, checkpoint_timeout, _SHORTEST_INTERVAL)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the least time between the end of a checkpoint and the start of the next, in ms."""
        return self._value(options.MIN_PAUSE).to_millis()

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Set the least time between the end of a checkpoint and the start of the next, in ms."""
        return self._set_millis(options.MIN_PAUSE, min_pause_between_checkpoints, 0)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be in progress at once."""
        return self._value(options.MAX_CONCURRENT)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be in progress at once. Raises ValueError below 1."""
        if max_concurrent_checkpoints < 1:
            raise ValueError(
                f"max_concurrent_checkpoints must be at least 1, not {max_concurrent_checkpoints}"
            )
        return self._set(options.MAX_CONCURRENT, max_concurrent_checkpoints)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether the job fails as soon as a checkpoint fails."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Set whether the job fails as soon as a checkpoint fails."""
        return self._set(
            options.TOLERABLE_FAILURES, 0 if fail_on_checkpointing_errors else _UNLIMITED_FAILURES
        )

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints in a row may fail before the job does."""
        return self._value(options.TOLERABLE_FAILURES)

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many checkpoints in a row may fail before the job does. Raises ValueError below 0."""
        if tolerable_checkpoint_failure_number < 0:
            raise ValueError(
                f"tolerable_checkpoint_failure_number must not be negative: "
                f"{tolerable_checkpoint_failure_number}"
            )
        return self._set(options.TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Whether checkpoints outlive a failed job."""
        retention = self.get_externalized_checkpoint_retention()
        return retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return whether checkpoints outlive a cancelled job."""
        return self._value(options.RETENTION)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints outlive a cancelled job."""
        return self._set(options.RETENTION, retention_mode)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether barriers may overtake records."""
        return self._value(options.UNALIGNED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake records, which makes checkpoints quick under back-pressure and larger."""
        return self._set(options.UNALIGNED, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Let barriers wait their turn, as is the default."""
        return self.enable_unaligned_checkpoints(False)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return how long a checkpoint stays aligned before its barriers overtake records."""
        return self._value(options.ALIGNED_TIMEOUT)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration | Time) -> CheckpointConfig:
        """Set how long a checkpoint stays aligned before its barriers overtake records."""
        return self._set_millis(
            options.ALIGNED_TIMEOUT, milliseconds_of(alignment_timeout, "alignment_timeout"), 0
        )

    def get_alignment_timeout(self) -> Duration:
        """Return the same as `get_aligned_checkpoint_timeout`; the older name."""
        return self.get_aligned_checkpoint_timeout()

    def set_alignment_timeout(self, alignment_timeout: Duration | Time) -> CheckpointConfig:
        """Set the same as `set_aligned_checkpoint_timeout`; the older name."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Set where checkpoints are written. Raises TypeError for a storage of a class of your own."""
        set_storage(self._configuration, storage)
        self._storage = storage
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the folder below which checkpoints are written."""
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return the storage given to `set_checkpoint_storage`; None: as configured."""
        return self._storage

    def is_force_unaligned_checkpoints(self) -> bool:
        """Whether checkpoints are unaligned even where the graph has a feedback edge."""
        return self._value(options.FORCE_UNALIGNED)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Set whether checkpoints are unaligned even where the graph has a feedback edge."""
        return self._set(options.FORCE_UNALIGNED, force_unaligned_checkpoints)

    def _value(self, option: ConfigOption[T]) -> T:
        value = self._configuration.get(option)
        assert value is not None, f"{option} is read here as if it had a default"
        return value

    def _set(self, option: ConfigOption[T], value: T) -> CheckpointConfig:
        self._configuration.set(option, value)
        return self

    def _set_millis(self, option: ConfigOption[Duration], millis: int, least: int) -> CheckpointConfig:
        if type(millis) is not int:
            raise TypeError(f"{option.key()} takes whole milliseconds, an int: not {millis!r}")
        if millis < least:
            raise ValueError(f"{option.key()} must be at least {least} ms, not {millis} ms")
        return self._set(option, Duration.of_millis(millis))
