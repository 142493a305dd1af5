"""Custom checkpoint storages: finds the one that `execution.checkpointing.storage: module:name` names.

The name is that of an object, or of a class without arguments, with the two methods of
CheckpointStorageFactory. One is called in the JobMaster's process, the other in every worker of the job, each
once a job. The module must be installed where both find it. Owner: any thread; nothing is opened here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.snapshot.errors import SnapshotStorageError
from yarrow.runtime.snapshot.storage import SnapshotStorage
from yarrow.runtime.snapshot.worker_file import WorkerStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageContext:
    """The settings of a custom storage."""

    job_id: JobID
    #: All keys of the job and the cluster, as text: a storage may have keys of its own.
    settings: Mapping[str, str]
    #: execution.checkpointing.dir, "" = not set.
    directory: str = ""
    #: Most bytes of a state in the metadata.
    inline_threshold: int = 20 * 1024
    #: Secret that seals metadata (metadata.encode_metadata), b"" = none; in the JobMaster's process only.
    secret: bytes = field(default=b"", repr=False)


class CheckpointStorageFactory(Protocol):
    """Makes both sides of a storage."""

    def checkpoint_storage(self, context: StorageContext) -> SnapshotStorage:
        """The JobMaster's side. Raises SnapshotStorageError at once if the storage cannot work."""
        ...

    def worker_storage(self, context: StorageContext) -> WorkerStorage:
        """The workers' side."""
        ...


def load_storage(name: str) -> CheckpointStorageFactory:
    """The factory of that name. Raises SnapshotStorageError with option and module if there is none."""
    key = checkpointing.STORAGE.key
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module.strip()), attribute.strip())
        factory: CheckpointStorageFactory = found() if isinstance(found, type) else found
    except Exception as error:  # whatever the module raises when it is loaded
        raise SnapshotStorageError(
            f"{key}: {name!r} cannot be loaded ({error}): install the module in the environments of the JobManager and"
            " of the workers"
        ) from error
    for method in ("checkpoint_storage", "worker_storage"):
        if not callable(getattr(factory, method, None)):
            raise SnapshotStorageError(
                f"{key}: {name!r} has no method {method}: name a CheckpointStorageFactory"
                " (yarrow.runtime.snapshot.custom_storage)"
            )
    return factory
