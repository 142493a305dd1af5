"""The rules between the keys of checkpoints, savepoints and their storage.

Owner: any thread; pure. Each rule yields an error that names the keys and what to do; runtime.config.validation
applies them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from yarrow.common.execution_modes import CheckpointingMode
from yarrow.common.values.quantities import Duration
from yarrow.runtime.config.options import checkpointing, execution, rpc
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.storage_names import BACKENDS, is_custom
from yarrow.runtime.config.values.errors import ConfigError, ContradictoryOptions

#: The shortest interval: below it a job would do little else.
SHORTEST_INTERVAL: Final = Duration.of_millis(10)
_STORAGES: Final = ("jobmanager", "filesystem")
_FOLDERS: Final = (checkpointing.DIRECTORY, checkpointing.SAVEPOINT_DIRECTORY)


def interval_is_long_enough(settings: Settings) -> Iterator[ConfigError]:
    """0 = none is taken."""
    interval = settings.get(checkpointing.INTERVAL)
    if interval is not None and 0 < interval.nanos < SHORTEST_INTERVAL.nanos:
        key = checkpointing.INTERVAL.key
        yield ContradictoryOptions(
            f"{key} is {interval}, below the shortest of {SHORTEST_INTERVAL}. Raise the interval, or leave the"
            " key out to take no checkpoints.",
            (key,),
        )


def timeout_is_long_enough(settings: Settings) -> Iterator[ConfigError]:
    """A checkpoint that is given up at once is none."""
    timeout = settings.get(checkpointing.TIMEOUT)
    if timeout.nanos < SHORTEST_INTERVAL.nanos:
        key = checkpointing.TIMEOUT.key
        yield ContradictoryOptions(
            f"{key} is {timeout}, below {SHORTEST_INTERVAL}: no checkpoint would be complete. Raise the"
            " timeout.",
            (key,),
        )


def unaligned_fits(settings: Settings) -> Iterator[ConfigError]:
    """Records in flight belong to one checkpoint at a time, and to none where records may count twice."""
    if not settings.get(checkpointing.UNALIGNED):
        return
    unaligned = checkpointing.UNALIGNED.key
    if settings.get(checkpointing.MODE) is CheckpointingMode.AT_LEAST_ONCE:
        mode = checkpointing.MODE.key
        yield ContradictoryOptions(
            f"{unaligned} is true and {mode} is AT_LEAST_ONCE, whose barriers never hold records up."
            f" Remove {unaligned}, or set {mode} to EXACTLY_ONCE.",
            (unaligned, mode),
        )
    most = settings.get(checkpointing.MAX_CONCURRENT)
    if most > 1:
        key = checkpointing.MAX_CONCURRENT.key
        yield ContradictoryOptions(
            f"{unaligned} is true and {key} is {most}: records in flight belong to one checkpoint at a time."
            f" Remove {unaligned}, or set {key} to 1.",
            (unaligned, key),
        )


def storage_is_known(settings: Settings) -> Iterator[ConfigError]:
    """execution.checkpointing.storage, and the folder that it may need."""
    key, folder = checkpointing.STORAGE.key, checkpointing.DIRECTORY.key
    storage = settings.get(checkpointing.STORAGE)
    if storage is None:
        return
    if is_custom(storage):
        return
    if storage.lower() not in _STORAGES:
        yield ContradictoryOptions(
            f"{key} is {storage!r}: expected jobmanager, filesystem, or module:name of a storage of your own.",
            (key,),
        )
    elif storage.lower() == "filesystem" and not settings.get(checkpointing.DIRECTORY):
        yield ContradictoryOptions(
            f"{key} is filesystem, which needs {folder}: set it to a folder that all processes reach.",
            (key, folder),
        )


def folders_are_absolute(settings: Settings) -> Iterator[ConfigError]:
    """Each process has a working directory of its own."""
    for option in _FOLDERS:
        folder = settings.get(option)
        if folder and "://" not in folder and not folder.startswith(("/", "file:/")):
            yield ContradictoryOptions(
                f"{option.key} is {folder!r}, which each process would look for in its own working directory:"
                " name an absolute path, file:///... or hdfs://host:port/...",
                (option.key,),
            )


def backend_is_known(settings: Settings) -> Iterator[ConfigError]:
    """state.backend.type; a backend of the user's own is looked for by the workers."""
    key, backend = checkpointing.STATE_BACKEND.key, settings.get(checkpointing.STATE_BACKEND).strip()
    if backend.lower() not in BACKENDS and not is_custom(backend):
        yield ContradictoryOptions(
            f"{key} is {backend!r}: expected hashmap, rocksdb, or module:name of a function that makes your own.",
            (key,),
        )


def inline_state_fits_messages(settings: Settings) -> Iterator[ConfigError]:
    """State that stays in the master travels there inside messages."""
    storage = settings.get(checkpointing.STORAGE)
    in_master = (
        not settings.get(checkpointing.DIRECTORY) if storage is None else storage.lower() == "jobmanager"
    )
    size, limit = settings.get(checkpointing.JOB_MANAGER_MAX_STATE_SIZE), settings.get(rpc.MESSAGE_MAX_SIZE)
    if in_master and size > limit:
        key, other = checkpointing.JOB_MANAGER_MAX_STATE_SIZE.key, rpc.MESSAGE_MAX_SIZE.key
        yield ContradictoryOptions(
            f"{key} ({size.human()}) is more than {other} ({limit.human()}), the size of the message in which"
            f" such state travels. Lower the first, raise the second, or set {checkpointing.DIRECTORY.key}.",
            (key, other),
        )


def claim_mode_is_supported(settings: Settings) -> Iterator[ConfigError]:
    """Refuse LEGACY, which leaves the owner of the snapshot open."""
    if settings.get(execution.CLAIM_MODE) is execution.ClaimMode.LEGACY:
        key = execution.CLAIM_MODE.key
        yield ContradictoryOptions(
            f"{key}: LEGACY is refused: nobody would own the snapshot. Use NO_CLAIM, which leaves the files to"
            " you, or CLAIM, with which the job may delete the files.",
            (key,),
        )


CHECKPOINT_RULES: Final = (
    interval_is_long_enough,
    timeout_is_long_enough,
    unaligned_fits,
    storage_is_known,
    folders_are_absolute,
    backend_is_known,
    inline_state_fits_messages,
    claim_mode_is_supported,
)
