"""StateTtlConfig: how long the values of a state live, and how expired ones are removed.

Settings alone, immutable once built; the builder belongs to the thread that made it. Each backend decides which
clean-up it can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from yarrow.common.time import Duration, Time, milliseconds_of

#: The age at which RocksDB compacts a file in any case, unless told otherwise; Flink's.
_MONTH = Duration.of_days(30)


@dataclass(frozen=True)
class StateTtlConfig:
    """The life time of the values of a state.

    Made by `StateTtlConfig.new_builder(ttl)`; an expired value counts as removed.

    Raises ValueError for a time to live that is not positive.
    """

    class UpdateType(Enum):
        """The accesses that renew a value."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether an expired value that is still stored may be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The clock that values age by."""

        ProcessingTime = 0

    @dataclass(frozen=True, init=False)
    class CleanupStrategies:
        """When expired values are removed from storage besides being hidden from readers."""

        class Strategies(Enum):
            """The names of clean-ups."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy:
            """A clean-up that a program asks for."""

        @dataclass(frozen=True)
        class EmptyCleanupStrategy(CleanupStrategy):
            """A clean-up without settings."""

        @dataclass(frozen=True, init=False)
        class IncrementalCleanupStrategy(CleanupStrategy):
            """Entries of a heap state are looked at as the state is used."""

            cleanup_size: int
            for_every_record: bool

            # Written out: a field cannot have the name of a method.
            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                object.__setattr__(self, "cleanup_size", cleanup_size)
                object.__setattr__(self, "for_every_record", run_cleanup_for_every_record)

            def get_cleanup_size(self) -> int:
                """Return how many entries each access looks at."""
                return self.cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                """Whether each record looks at entries too."""
                return self.for_every_record

        @dataclass(frozen=True)
        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Expired values of RocksDB are removed in the background."""

            query_time_after_num_entries: int
            periodic_compaction_time: Time | Duration = _MONTH

            def get_query_time_after_num_entries(self) -> int:
                """Return the entries between two looks at the clock."""
                return self.query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Time | Duration:
                """Return the age at which a file is compacted in any case."""
                return self.periodic_compaction_time

        EMPTY_STRATEGY: ClassVar[EmptyCleanupStrategy] = EmptyCleanupStrategy()

        #: The clean-ups that the program asks for.
        strategies: Mapping[Strategies, CleanupStrategy] = field(hash=False)
        #: Whether the backend's own clean-up runs where none was asked for.
        in_background: bool

        # Written out: a field cannot have the name of a method.
        def __init__(
            self,
            strategies: Mapping[Strategies, CleanupStrategy] | None = None,
            is_cleanup_in_background: bool = True,
        ) -> None:
            object.__setattr__(self, "strategies", dict(strategies or {}))
            object.__setattr__(self, "in_background", is_cleanup_in_background)

        def is_cleanup_in_background(self) -> bool:
            """Whether the backend's own clean-up runs where none was asked for."""
            return self.in_background

        def in_full_snapshot(self) -> bool:
            """Whether expired values are left out of full snapshots."""
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self.strategies

        def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
            """Return the clean-up of heap states: as asked for, else the default in the background, else None."""
            asked_for = self.strategies.get(self.Strategies.INCREMENTAL_CLEANUP)
            if isinstance(asked_for, self.IncrementalCleanupStrategy):
                return asked_for
            return self.IncrementalCleanupStrategy(5, False) if self.in_background else None

        def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
            """Return the clean-up of RocksDB: as asked for, else the default in the background, else None."""
            asked_for = self.strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER)
            if isinstance(asked_for, self.RocksdbCompactFilterCleanupStrategy):
                return asked_for
            return self.RocksdbCompactFilterCleanupStrategy(1000) if self.in_background else None

    class Builder:
        """Collects the settings."""

        def __init__(self, ttl: Time | Duration) -> None:
            self._ttl: Time | Duration = ttl
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._cleanup_in_background = True
            self._cleanup: dict[
                StateTtlConfig.CleanupStrategies.Strategies, StateTtlConfig.CleanupStrategies.CleanupStrategy
            ] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Set the accesses that renew a value."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Let only writing renew a value, as is the default."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Reading makes a value young again too."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateTtlConfig.StateVisibility
        ) -> StateTtlConfig.Builder:
            """Set whether an expired value that is still stored may be read."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """An expired value is read until it is removed from storage."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """An expired value is never read, as is the default."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set the clock that values age by."""
            self._time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Values age by the machine's clock, as is the default."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired values out of full snapshots."""
            cleanup = StateTtlConfig.CleanupStrategies
            self._cleanup[cleanup.Strategies.FULL_STATE_SCAN_SNAPSHOT] = cleanup.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Look at this many entries of a heap state at each access, or at each record.

            Raises ValueError below 1.
            """
            if cleanup_size < 1:
                raise ValueError(f"cleanup_size must be at least 1, not {cleanup_size}")
            cleanup = StateTtlConfig.CleanupStrategies
            self._cleanup[cleanup.Strategies.INCREMENTAL_CLEANUP] = cleanup.IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: Time | Duration = _MONTH,
        ) -> StateTtlConfig.Builder:
            """Remove expired values of RocksDB in the background, reading the clock every so many entries."""
            if query_time_after_num_entries < 1:
                raise ValueError(
                    f"query_time_after_num_entries must be at least 1, not {query_time_after_num_entries}"
                )
            cleanup = StateTtlConfig.CleanupStrategies
            self._cleanup[cleanup.Strategies.ROCKSDB_COMPACTION_FILTER] = (
                cleanup.RocksdbCompactFilterCleanupStrategy(
                    query_time_after_num_entries, periodic_compaction_time
                )
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove expired values only when they are read, unless a clean-up was asked for by its name."""
            self._cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Time | Duration) -> StateTtlConfig.Builder:
            """Set the time to live."""
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """Return the settings."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(self._cleanup, self._cleanup_in_background),
            )

    update_type: UpdateType
    state_visibility: StateVisibility
    ttl_time_characteristic: TtlTimeCharacteristic
    ttl: Time | Duration
    cleanup_strategies: CleanupStrategies = field(default_factory=CleanupStrategies)

    def __post_init__(self) -> None:
        if milliseconds_of(self.ttl, "ttl") < 1:
            raise ValueError(f"the time to live of a state must be at least 1 ms, not {self.ttl!r}")

    @staticmethod
    def new_builder(ttl: Time | Duration) -> Builder:
        """Begin settings with this time to live."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        """Return the accesses that renew a value."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether an expired value that is still stored may be read."""
        return self.state_visibility

    def get_ttl(self) -> Time | Duration:
        """Return the time to live."""
        return self.ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return the clock that values age by."""
        return self.ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Whether values expire at all."""
        return self.update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Return when expired values are removed from storage."""
        return self.cleanup_strategies
