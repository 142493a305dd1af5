"""Places where processes on several nodes meet: on YARN none of them may be a path of one machine.

Owner: any thread; pure. Asked by the client before it deploys, and by the master for what a job brings itself.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

from yarrow.runtime.common.paths import scheme_of
from yarrow.runtime.config.options import checkpointing, execution, high_availability, jobmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.storage_names import is_custom
from yarrow.runtime.config.values.option import EngineOption
from yarrow.runtime.yarn.gateways import YarnError

#: Each must be one place for all processes.
_SHARED_PLACES: Final[tuple[EngineOption[str | None], ...]] = (
    checkpointing.DIRECTORY,
    checkpointing.SAVEPOINT_DIRECTORY,
    high_availability.STORAGE_DIR,
    jobmanager.ARCHIVE_DIR,
)


def check_shared_places(config: Settings) -> None:
    """Raises YarnError for a place that processes on several nodes share and that is on one machine's disk."""
    # A storage of the user's own reads names as it likes.
    is_own = is_custom(config.get(checkpointing.DIRECTORY) or "")
    for option in _SHARED_PLACES if is_own else (*_SHARED_PLACES, execution.SAVEPOINT_PATH):
        value = config.get(option)
        if value and not is_custom(value) and scheme_of(value) == "file":
            raise YarnError(
                f"{config.name_in_use(option)} is {value}: on YARN every node has another {local_path(value)}. Name a"
                f" directory on HDFS, {_on_hdfs(value)}."
            )


def check_savepoint_target(path: str) -> None:
    """Check the directory that a request names for a savepoint: a local one would be on the master's node."""
    if not is_custom(path) and scheme_of(path) == "file":
        raise YarnError(
            f"The savepoint is to go to {path}: on YARN every node has another {local_path(path)}, and its"
            f" files would be spread over the nodes. Name a directory on HDFS, {_on_hdfs(path)}, or none where"
            f" {checkpointing.SAVEPOINT_DIRECTORY.key} is set."
        )


def _on_hdfs(path: str) -> str:
    return f"hdfs://host:port/{local_path(path).removeprefix('~').lstrip('/')}"


def local_path(path: str) -> str:
    """A plain path or `file:` URL as a path of this machine."""
    return unquote(urlsplit(path).path) if path.lower().startswith("file:") else path
