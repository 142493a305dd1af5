"""What a program sets about checkpoints beyond CheckpointConfig: storages and backends as keys.

Owner: the thread that builds the program. Pure but for the Configuration it is given.
"""

from __future__ import annotations

import yarrow.runtime.config.options.checkpointing as checkpointing_options
from yarrow.common.configuration import Configuration
from yarrow.datastream.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from yarrow.datastream.state_backend import StateBackend, backend_settings


def storage_settings(storage: CheckpointStorage) -> dict[str, str]:
    """Return the configuration keys that a storage stands for. Raises TypeError for an object of another class."""
    if isinstance(storage, FileSystemCheckpointStorage):
        return {
            checkpointing_options.STORAGE.key: "filesystem",
            checkpointing_options.DIRECTORY.key: storage.get_checkpoint_path(),
            checkpointing_options.DATA_INLINE_THRESHOLD.key: f"{storage.get_min_file_size_threshold()}b",
        }
    if isinstance(storage, JobManagerCheckpointStorage):
        keys = {
            checkpointing_options.STORAGE.key: "jobmanager",
            checkpointing_options.JOB_MANAGER_MAX_STATE_SIZE.key: f"{storage.get_max_state_size()}b",
        }
        path = storage.get_checkpoint_path()
        return keys if path is None else {**keys, checkpointing_options.DIRECTORY.key: path}
    if isinstance(storage, CustomCheckpointStorage):
        return {checkpointing_options.STORAGE.key: storage.get_factory()}
    raise TypeError(
        f"{type(storage).__name__} does not say where checkpoints go: use FileSystemCheckpointStorage,"
        " JobManagerCheckpointStorage, or CustomCheckpointStorage with the name of your factory"
    )


def set_storage(configuration: Configuration, storage: CheckpointStorage) -> None:
    """Writes a storage into a configuration, in place of another."""
    settings = storage_settings(storage)
    if checkpointing_options.DIRECTORY.key not in settings and not isinstance(
        storage, CustomCheckpointStorage
    ):
        configuration.remove_config(checkpointing_options.DIRECTORY.key)
    for key, value in settings.items():
        configuration.set_string(key, value)


def set_backend(configuration: Configuration, backend: StateBackend) -> None:
    """Writes a state backend into a configuration. Raises TypeError, and what `backend_settings` raises."""
    if not isinstance(backend, StateBackend):
        raise TypeError(
            f"set_state_backend takes a state backend such as EmbeddedRocksDBStateBackend(), not {backend!r}; by name"
            " it is set as state.backend.type in the configuration"
        )
    for key, value in backend_settings(backend).items():
        configuration.set_string(key, value)
