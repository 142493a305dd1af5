"""Removes what killed applications with high availability have left behind.

These are nodes in ZooKeeper and folders below high-availability.storageDir.

Owner: the client's thread; blocking. It touches only data under an application's own id: such an id never
comes again, while a chosen cluster-id may. Data of a failed application stay, because its last checkpoint may
lie there. Checkpoints that outlive their jobs stay.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.config.options import high_availability
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.ha.removal import remove_nodes
from yarrow.runtime.ha.settings import is_highly_available, storage_directory
from yarrow.runtime.ha.stored_files import remove_stored_files
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, ApplicationReport, YarnError, YarnState
from yarrow.runtime.yarn.staging_root import hadoop_user

log = logging.getLogger(__name__)

#: Reads an application's report from YARN.
ReportOf = Callable[[str], ApplicationReport]
_APPLICATION: Final = re.compile(r"application_\d+_\d+")
_FINAL: Final = (YarnState.KILLED, YarnState.FINISHED)


def is_kept_by_application_id(config: Settings) -> bool:
    """Whether applications of that configuration store data that outlives an attempt under their own ids."""
    return is_highly_available(config) and not config.is_set(high_availability.CLUSTER_ID)


def remove_ended(
    config: Settings, report_of: ReportOf, nodes: Callable[[Settings], None] = remove_nodes
) -> None:
    """Removes the data of all ended applications below the storage directory; what cannot be removed stays."""
    try:
        if not is_highly_available(config):
            return
        folder = (config.get(high_availability.STORAGE_DIR) or "").strip()
        if not folder:
            return
        for entry in file_system_for(folder).list(folder):
            if _APPLICATION.fullmatch(entry.name):
                remove_one(config, entry.name, report_of, nodes)
    except FileNotFoundError:
        return
    except (OSError, FileSystemError, ConfigError) as error:
        log.debug("the data of ended applications cannot be removed: %s", error)


def remove_one(
    config: Settings,
    application_id: str,
    report_of: ReportOf,
    nodes: Callable[[Settings], None] = remove_nodes,
) -> None:
    """Removes the data of one application that was killed or has finished; hides errors of YARN and the stores."""
    own = config.with_value(high_availability.CLUSTER_ID, application_id)
    try:
        report = report_of(application_id)
        if report.state not in _FINAL or report.user not in ("", hadoop_user()):
            return
        try:
            nodes(own)
        except RecordsError as error:
            log.warning("%s", error)
        remove_stored_files(storage_directory(own))
        log.debug("removed the data of %s", application_id)
    except ApplicationNotFoundError:
        return
    except (OSError, FileSystemError, YarnError, ConfigError) as error:
        log.debug("the data of %s cannot be removed: %s", application_id, error)
