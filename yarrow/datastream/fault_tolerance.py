"""What a program sets about checkpoints beyond CheckpointConfig: storages and backends as keys, and what they rule out.

Owner: the thread that builds the program. Pure but for the Configuration it is given.
"""

from __future__ import annotations

from collections.abc import Iterable

import yarrow.runtime.config.options.checkpointing as checkpointing_options
from yarrow.common.configuration import Configuration
from yarrow.common.execution_modes import CheckpointingMode
from yarrow.datastream.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from yarrow.datastream.state_backend import StateBackend, backend_settings
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.settings import Settings


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


def refuse_lost_records(settings: Settings, not_replayable: Iterable[str]) -> None:
    """Refuse exactly-once over a source that cannot read its records again.

    Raises InvalidProgramError naming the sources, unless the program says that it may lose records.
    """
    interval = settings.get(checkpointing_options.INTERVAL)
    names = sorted(set(not_replayable))
    if not names or interval is None or interval.nanos == 0:
        return
    if settings.get(checkpointing_options.MODE) is not CheckpointingMode.EXACTLY_ONCE:
        return
    if settings.get(checkpointing_options.ALLOW_NON_REPLAYABLE_SOURCES):
        return
    listed = ", ".join(f"'{name}'" for name in names)
    raise InvalidProgramError(
        f"The program asks for exactly-once checkpoints, and {listed} cannot read its records again:"
        " records between the last checkpoint and a failure would be lost. Read from a source that can (a"
        f" SourceFunction: mix in CheckpointedFunction), set {checkpointing_options.MODE.key} to"
        f" AT_LEAST_ONCE, or accept the loss by {checkpointing_options.ALLOW_NON_REPLAYABLE_SOURCES.key}:"
        " true."
    )
