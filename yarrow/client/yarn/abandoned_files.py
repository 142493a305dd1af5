"""Removes folders on HDFS that killed ApplicationMasters of Skein have left behind.

Clients that were killed while they uploaded leave such folders too.

Owner: the client's thread, while it waits for its own application anyway; blocking, a few requests. It
touches only folders of this user's applications that have ended according to YARN. An application that YARN
does not know may be about to start from another client, or belong to another YARN. Its folder is removed
after a day, if this YARN gave its number.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from yarrow.client.yarn.yarn_client import YarnClient
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, ApplicationReport, YarnError
from yarrow.runtime.yarn.staging_root import applications_folder

log = logging.getLogger(__name__)

_APPLICATION: Final = re.compile(r"application_\d+_\d+")


#: After this time no client is still uploading.
_ABANDONED_MS: Final = 24 * 3600 * 1000


def remove_abandoned(client: YarnClient, latest: str = "", clock: Clock | None = None) -> None:
    """Removes the folders; logs those that cannot be read or removed.

    `latest`: an application that YARN has just accepted; without it, folders of applications unknown to YARN
    stay.
    """
    now_ms = (clock or SystemClock()).epoch_ms()
    try:
        for path in abandoned_folders(client.report, latest, now_ms):
            file_system_for(path).delete(path, recursive=True)
            log.debug("removed %s, which a lost master had left behind", path)
    except (OSError, FileSystemError, YarnError) as error:
        log.debug("the files of ended applications on HDFS cannot be removed: %s", error)


def abandoned_folders(
    report_of: Callable[[str], ApplicationReport], latest: str = "", now_ms: int = 0, home: str = ""
) -> list[str]:
    """The hdfs:// URLs of folders of this user's ended applications, the oldest application first.

    With `latest`, folders of applications that were never submitted are among them. `home`: the folder in which each
    application has one; "" = that of Skein.
    """
    home = home or applications_folder()
    try:
        entries = [entry for entry in file_system_for(home).list(home) if _APPLICATION.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    ended = [entry.name for entry in entries if _has_ended(report_of, entry, latest, now_ms)]
    return [join(home, name) for name in sorted(ended)]


def was_never_submitted(application_id: str, modified_ms: int, latest: str, now_ms: int) -> bool:
    """Whether the folder of an application that YARN does not know may go.

    YARN has given the application's number since YARN started, as it gave that of `latest`, so it would know a
    running one. Nobody has written to the folder for a day.
    """
    of_this_yarn = application_id.rpartition("_")[0] == latest.rpartition("_")[0]
    return of_this_yarn and now_ms - modified_ms > _ABANDONED_MS


def _has_ended(
    report_of: Callable[[str], ApplicationReport], folder: FileStatus, latest: str, now_ms: int
) -> bool:
    try:
        return report_of(folder.name).state.has_ended
    except ApplicationNotFoundError:
        return was_never_submitted(folder.name, folder.modified_ms, latest, now_ms)
