"""State backends: where keyed state lives between records, as settings.

Immutable in spirit: set while the job is built, read by the workers. The stores themselves are part of the
runtime.
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "PredefinedOptions",
    "StateBackend",
]


class PredefinedOptions(Enum):
    """Sets of RocksDB options for kinds of disk."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class StateBackend:
    """Where keyed state lives."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateBackend) and type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k[1:]}={v!r}' for k, v in vars(self).items())})"


class HashMapStateBackend(StateBackend):
    """As Python objects in the worker's memory: fastest, and bounded by it."""


class EmbeddedRocksDBStateBackend(StateBackend):
    """In RocksDB on the worker's disk: as large as the disk, with incremental checkpoints.

    A setting that is None is taken from the configuration.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        self._enable_incremental_checkpointing = enable_incremental_checkpointing
        self._db_storage_paths: tuple[str, ...] | None = None
        self._predefined_options = PredefinedOptions.DEFAULT
        self._number_of_transfer_threads = 4

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Whether a checkpoint uploads only the files that are new since the one before;

        unless set, it does not.
        """
        return bool(self._enable_incremental_checkpointing)

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local folders of the databases;

        none takes the setting back. Raises ValueError for an empty path.
        """
        if not all(paths):
            raise ValueError("a path of set_db_storage_paths is empty: name local folders, or pass nothing")
        self._db_storage_paths = paths or None

    def get_db_storage_paths(self) -> list[str] | None:
        """Return the local folders of the databases; None: the worker's temporary folders."""
        return None if self._db_storage_paths is None else list(self._db_storage_paths)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Set the options for a kind of disk."""
        self._predefined_options = PredefinedOptions(options)

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the options for a kind of disk."""
        return self._predefined_options

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many files are moved at once at checkpoint and restore. Raises ValueError below 1."""
        if number_of_transfering_threads < 1:
            raise ValueError(
                f"number of transfer threads must be at least 1, not {number_of_transfering_threads}"
            )
        self._number_of_transfer_threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """Return how many files are moved at once at checkpoint and restore."""
        return self._number_of_transfer_threads


class CustomStateBackend(StateBackend):
    """The base of backends that users write."""
