"""The folder of a savepoint that the state processor writes.

Owner: the calling thread. Errors are those of the state processor.
"""

from __future__ import annotations

from yarrow.runtime.snapshot.writing.savepoint_folder import SavepointExistsError, SavepointFolder
from yarrow.state_processor.errors import StateProcessorError


def new_folder(path: str) -> SavepointFolder:
    """Begins a savepoint. Raises StateProcessorError where one is there already, and SnapshotStorageError."""
    try:
        return SavepointFolder(path)
    except SavepointExistsError as error:
        raise StateProcessorError(str(error)) from None
