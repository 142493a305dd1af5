"""What Skein's ApplicationMasters that were killed or lost could not remove from HDFS: the folders of their
applications.

Owner: the client's thread, while it waits for its own application anyhow; blocking, a few requests.
It touches folders of this user's applications alone, and only of those that YARN says have ended: one that YARN does
not know may just be on its way there, by another client.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from yarrow.runtime.fs.file_system import FileSystemError, file_system_for, join
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, ApplicationReport, YarnError
from yarrow.runtime.yarn.staging_root import applications_folder
from yarrow.runtime.yarn.yarn_client import YarnClient

log = logging.getLogger(__name__)

_APPLICATION: Final = re.compile(r"application_\d+_\d+")


def remove_abandoned(client: YarnClient) -> None:
    """Removes them; what cannot be read or removed stays, with a word in the log."""
    try:
        for path in abandoned_folders(client.report):
            file_system_for(path).delete(path, recursive=True)
            log.debug("removed %s, which a master that was lost had left", path)
    except (OSError, FileSystemError, YarnError) as error:
        log.debug("what ended applications left on HDFS cannot be removed: %s", error)


def abandoned_folders(report_of: Callable[[str], ApplicationReport]) -> list[str]:
    """The hdfs:// URLs of folders of this user's applications that have ended, oldest application first."""
    home = applications_folder()
    try:
        names = [entry.name for entry in file_system_for(home).list(home)]
    except FileNotFoundError:
        return []
    ended = [name for name in names if _APPLICATION.fullmatch(name) and _has_ended(report_of, name)]
    return [join(home, name) for name in sorted(ended)]


def _has_ended(report_of: Callable[[str], ApplicationReport], application_id: str) -> bool:
    try:
        return report_of(application_id).state.has_ended
    except ApplicationNotFoundError:
        return False
