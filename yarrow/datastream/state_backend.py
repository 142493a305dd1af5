"""State backends: where keyed state lives between records, as settings.

Immutable in spirit: set while the job is built, and turned into configuration (`backend_settings`), which is all that
workers read. The stores themselves are part of the runtime.
"""

from __future__ import annotations

import re
from enum import Enum

from yarrow.datastream.checkpoint_storage import without_last_slash

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "HashMapStateBackend",
    "MemoryStateBackend",
    "PredefinedOptions",
    "RocksDBStateBackend",
    "StateBackend",
    "backend_settings",
]


class PredefinedOptions(Enum):
    """Sets of RocksDB options for kinds of disk."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class StateBackend:
    """A place for keyed state."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateBackend) and type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def _configuration(self) -> dict[str, str]:
        """The configuration that says the same, for `backend_settings`."""
        raise TypeError(
            f"{type(self).__name__} does not say which state backend it is: use HashMapStateBackend, "
            "EmbeddedRocksDBStateBackend or CustomStateBackend"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k[1:]}={v!r}' for k, v in vars(self).items())})"


class HashMapStateBackend(StateBackend):
    """A backend that keeps state as Python objects in the worker's memory: fastest, and bounded by it."""

    def _configuration(self) -> dict[str, str]:
        return {"state.backend.type": "hashmap"}


class EmbeddedRocksDBStateBackend(StateBackend):
    """In RocksDB on the worker's disk: as large as the disk, with incremental checkpoints.

    A setting that is None is taken from the configuration.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        self._enable_incremental_checkpointing = enable_incremental_checkpointing
        self._db_storage_paths: tuple[str, ...] | None = None
        self._predefined_options: PredefinedOptions | None = None
        self._number_of_transfer_threads: int | None = None

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Whether a checkpoint uploads only the files that are new since the one before.

        Unless set, it does not.
        """
        return bool(self._enable_incremental_checkpointing)

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local folders of the databases, as paths or as file:///path; none takes the setting back.

        Raises ValueError for a path that is no absolute local one.
        """
        self._db_storage_paths = tuple(_local_folder(path) for path in paths) or None

    def get_db_storage_paths(self) -> list[str] | None:
        """Return the local folders of the databases; None: the worker's temporary folders."""
        return None if self._db_storage_paths is None else list(self._db_storage_paths)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Set the options for a kind of disk."""
        self._predefined_options = PredefinedOptions(options)

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the options for a kind of disk."""
        return self._predefined_options or PredefinedOptions.DEFAULT

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many files are moved at once at checkpoint and restore. Raises ValueError below 1."""
        if number_of_transfering_threads < 1:
            raise ValueError(
                f"number of transfer threads must be at least 1, not {number_of_transfering_threads}"
            )
        self._number_of_transfer_threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """Return how many files are moved at once at checkpoint and restore."""
        return 4 if self._number_of_transfer_threads is None else self._number_of_transfer_threads

    def _configuration(self) -> dict[str, str]:
        found = {"state.backend.type": "rocksdb"}
        if self._enable_incremental_checkpointing is not None:
            incremental = "true" if self._enable_incremental_checkpointing else "false"
            found["execution.checkpointing.incremental"] = incremental
        if self._db_storage_paths is not None:
            found["state.backend.rocksdb.localdir"] = ";".join(f'"{path}"' for path in self._db_storage_paths)
        if self._predefined_options is not None:
            found["state.backend.rocksdb.predefined-options"] = self._predefined_options.name
        if self._number_of_transfer_threads is not None:
            threads = str(self._number_of_transfer_threads)
            found["state.backend.rocksdb.checkpoint.transfer.thread.num"] = threads
        return found


class CustomStateBackend(StateBackend):
    """A backend that users write: `factory` names, as `module:name`, a function or class which the worker imports.

    It is called with a yarrow.container.state.backend.KeyedBackendContext and gives the KeyedStateBackend of one
    operator's subtask. A subclass may override `get_factory` instead.
    """

    def __init__(self, factory: str = "") -> None:
        self._factory = factory

    def get_factory(self) -> str:
        """Return the name of the function, as `module:name`."""
        return self._factory

    def _configuration(self) -> dict[str, str]:
        factory = self.get_factory()
        if ":" not in factory:
            raise ValueError(
                f"{type(self).__name__} names no factory ({factory!r}): pass 'module:name' of a function that takes a "
                "KeyedBackendContext and gives a KeyedStateBackend"
            )
        return {"state.backend.type": factory}


class MemoryStateBackend(HashMapStateBackend):
    """The old name of HashMapStateBackend with checkpoints kept by the JobManager.

    Deprecated: use HashMapStateBackend and JobManagerCheckpointStorage.
    """

    def __init__(
        self, max_state_size: int | None = None, using_asynchronous_snapshots: bool | None = None
    ) -> None:
        # Snapshots are asynchronous in every case.
        if max_state_size is not None and max_state_size < 1:
            raise ValueError(f"max_state_size must be positive, not {max_state_size}")
        self._max_state_size = max_state_size

    def get_max_state_size(self) -> int | None:
        """Return the largest state in bytes; None: that of JobManagerCheckpointStorage."""
        return self._max_state_size

    def _configuration(self) -> dict[str, str]:
        found = super()._configuration() | {"execution.checkpointing.storage": "jobmanager"}
        if self._max_state_size is not None:
            size = f"{self._max_state_size} b"
            found["execution.checkpointing.jobmanager-storage.max-state-size"] = size
        return found


class FsStateBackend(HashMapStateBackend):
    """The old name of HashMapStateBackend with checkpoints in files.

    Deprecated: use HashMapStateBackend and FileSystemCheckpointStorage.
    """

    def __init__(
        self,
        checkpoint_directory_uri: str,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        if not checkpoint_directory_uri:
            raise ValueError(
                "the directory of FsStateBackend is empty: pass a path or a URI such as hdfs:///checkpoints"
            )
        self._checkpoint_directory = without_last_slash(checkpoint_directory_uri)
        self._savepoint_directory = default_savepoint_directory_uri
        self._threshold = file_state_size_threshold

    def get_checkpoint_path(self) -> str:
        """Return the directory of the checkpoints."""
        return self._checkpoint_directory

    def _configuration(self) -> dict[str, str]:
        found = super()._configuration() | {
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": self._checkpoint_directory,
        }
        if self._savepoint_directory is not None:
            found["execution.checkpointing.savepoint-dir"] = self._savepoint_directory
        if self._threshold is not None and self._threshold >= 0:
            found["execution.checkpointing.data-inline-threshold"] = f"{self._threshold} b"
        return found


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """The old name of EmbeddedRocksDBStateBackend with checkpoints in files.

    Deprecated: use EmbeddedRocksDBStateBackend and FileSystemCheckpointStorage.
    """

    def __init__(
        self,
        checkpoint_data_uri: str | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: StateBackend | None = None,
    ) -> None:
        super().__init__(enable_incremental_checkpointing)
        if checkpoint_data_uri is None and checkpoint_stream_backend is None:
            raise ValueError(
                "RocksDBStateBackend needs the directory of its checkpoints: pass checkpoint_data_uri, or use "
                "EmbeddedRocksDBStateBackend with a checkpoint storage"
            )
        self._checkpoint_data_uri = checkpoint_data_uri
        self._checkpoint_stream_backend = checkpoint_stream_backend

    def _configuration(self) -> dict[str, str]:
        storage = (
            {}
            if self._checkpoint_stream_backend is None
            else backend_settings(self._checkpoint_stream_backend)
        )
        if self._checkpoint_data_uri is not None:
            storage = {
                "execution.checkpointing.storage": "filesystem",
                "execution.checkpointing.dir": self._checkpoint_data_uri,
            }
        return storage | super()._configuration()


def _local_folder(path: str) -> str:
    """The path of a local folder, which may be given as a URI."""
    uri = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?://([^/]*))?(?=/)", path)
    if uri is not None and (uri[1].lower() != "file" or uri[2] not in (None, "", "localhost")):
        raise ValueError(f"{path!r} of set_db_storage_paths is no local folder: pass /path or file:///path")
    plain = path if uri is None else path[uri.end() :]
    if not plain.startswith("/"):
        raise ValueError(
            f"{path!r} of set_db_storage_paths is no absolute path: name local folders, or pass nothing"
        )
    return plain


def backend_settings(backend: StateBackend) -> dict[str, str]:
    """Return the configuration keys that a state backend stands for; settings it leaves open are left out.

    Raises TypeError or ValueError for a backend that workers could not make.
    """
    return backend._configuration()
