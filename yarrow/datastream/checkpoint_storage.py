"""Checkpoint storages: where checkpoints are written, as settings.

Immutable values made while the job is built; the checkpoint part of the runtime opens the paths.
"""

from __future__ import annotations

from yarrow.runtime.config.storage_names import is_custom

__all__ = [
    "CheckpointStorage",
    "CustomCheckpointStorage",
    "FileSystemCheckpointStorage",
    "JobManagerCheckpointStorage",
]


def without_last_slash(path: str) -> str:
    """A path or URI as Flink's paths are: without slashes at its end, but for the root of a file system."""
    head = len(path) - len(path.partition("://")[2]) if "://" in path else 0
    if path.startswith("file:") and not head:
        head = len("file:")
    return path[:head] + (path[head:].rstrip("/") or path[head : head + 1])


class CheckpointStorage:
    """A place where checkpoints are written."""

    def _settings(self) -> tuple[object, ...]:
        return tuple(sorted(vars(self).items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckpointStorage) and (
            type(self) is type(other) and self._settings() == other._settings()
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._settings()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k[1:]}={v!r}' for k, v in vars(self).items())})"


class JobManagerCheckpointStorage(CheckpointStorage):
    """In the memory of the job master: for trials, as checkpoints die with it. Sizes are in bytes."""

    #: The largest state of one subtask unless set, 5 MiB.
    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if size < 1:
            raise ValueError(f"max_state_size must be positive, not {size}")
        self._checkpoint_path = None if checkpoint_path is None else without_last_slash(checkpoint_path)
        self._max_state_size = size

    def get_checkpoint_path(self) -> str | None:
        """Return the path that metadata is written to, or None."""
        return self._checkpoint_path

    def get_max_state_size(self) -> int:
        """Return the largest state of one subtask, in bytes."""
        return self._max_state_size

    def get_savepoint_path(self) -> str | None:
        """Return the path of savepoints for requests without a path; None: as configured."""
        return None


class FileSystemCheckpointStorage(CheckpointStorage):
    """A storage in files below a path of any supported file system. Sizes are in bytes.

    State smaller than the threshold goes into the checkpoint's metadata. Raises ValueError for an empty path
    or a threshold outside 0 to 1 MiB.
    """

    #: The largest threshold: metadata is read and written as a whole.
    MAX_FILE_STATE_THRESHOLD = 1024 * 1024
    #: The threshold unless set.
    DEFAULT_FILE_STATE_THRESHOLD = 20 * 1024
    #: The buffer unless set.
    DEFAULT_WRITE_BUFFER_SIZE = 4096

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        if not checkpoint_path:
            raise ValueError(
                "FileSystemCheckpointStorage needs a checkpoint_path such as hdfs:///checkpoints"
            )
        threshold = (
            self.DEFAULT_FILE_STATE_THRESHOLD
            if file_state_size_threshold is None
            else file_state_size_threshold
        )
        if not 0 <= threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise ValueError(
                f"file_state_size_threshold must be 0 to {self.MAX_FILE_STATE_THRESHOLD} bytes, not "
                f"{threshold}"
            )
        self._checkpoint_path = without_last_slash(checkpoint_path)
        self._file_state_size_threshold = threshold
        self._write_buffer_size = write_buffer_size

    def get_checkpoint_path(self) -> str:
        """Return the path below which checkpoints are written."""
        return self._checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Return the path of savepoints for requests without a path; None: as configured."""
        return None

    def get_min_file_size_threshold(self) -> int:
        """Return the size below which state goes into the metadata."""
        return self._file_state_size_threshold

    def get_write_buffer_size(self) -> int:
        """Return the size of the buffer of an output file."""
        if self._write_buffer_size >= 0:
            return self._write_buffer_size
        return max(self._file_state_size_threshold, self.DEFAULT_WRITE_BUFFER_SIZE)


class CustomCheckpointStorage(CheckpointStorage):
    """A storage of your own, by the name `module:name` of its CheckpointStorageFactory.

    The factory makes both sides of the storage, that of the JobMaster and that of the workers (see
    yarrow.runtime.snapshot.custom_storage). Its module must be installed for both. Raises ValueError for another form.
    """

    def __init__(self, factory: str) -> None:
        if not is_custom(factory):
            raise ValueError(f"CustomCheckpointStorage needs the module:name of its factory, not {factory!r}")
        self._factory = factory

    def get_factory(self) -> str:
        """Return the name of the factory."""
        return self._factory
