"""What Skein's ApplicationMasters that were killed or lost could not remove from HDFS: the folders of their
applications.

Owner: the client's thread, while it waits for its own application anyhow; blocking, a few requests.
It touches folders of this user's applications alone, and only of those that YARN says have ended: one that YARN does
not know may just be on its way there, by another client.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from yarrow.runtime.fs.file_system import FileSystemError, file_system_for, join
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, YarnError
from yarrow.runtime.yarn.staging_root import home_directory
from yarrow.runtime.yarn.yarn_client import YarnClient

log = logging.getLogger(__name__)

_FOLDER: Final = ".skein"
_APPLICATION: Final = re.compile(r"application_\d+_\d+")


def remove_abandoned(client: YarnClient) -> None:
    """Removes them; what cannot be read or removed stays, with a word in the log."""
    try:
        home = join(home_directory(), _FOLDER)
        files = file_system_for(home)
        for entry in files.list(home):
            if _APPLICATION.fullmatch(entry.name) and _has_ended(client, entry.name):
                files.delete(join(home, entry.name), recursive=True)
                log.debug("removed what %s had left on HDFS", entry.name)
    except FileNotFoundError:
        return
    except (OSError, FileSystemError, YarnError) as error:
        log.debug("what ended applications left on HDFS cannot be removed: %s", error)


def _has_ended(client: YarnClient, application_id: str) -> bool:
    try:
        return client.report(application_id).state.has_ended
    except ApplicationNotFoundError:
        return False
