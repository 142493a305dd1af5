"""Ends applications of Spark that have outlived the application of ours whose bounded job has asked for them.

Owner: the client's thread, while it waits for its own application anyway; blocking, a few requests. It touches only
those whose tags say that they are ours, and name an application that has ended according to YARN.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Final

from yarrow.client.yarn.yarn_client import YarnClient
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, ApplicationReport, YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.resource_manager_web import ResourceManagerWeb
from yarrow.runtime.yarn.spark_containers import TAG

log = logging.getLogger(__name__)

_APPLICATION: Final = re.compile(r"application_\d+_\d+")
#: Id and tags of each living application with a tag.
Living = Callable[[str], Sequence[tuple[str, frozenset[str]]]]


def end_abandoned_spark(client: YarnClient, config: Settings) -> None:
    """Has YARN kill them; logs what fails."""
    try:
        web = ResourceManagerWeb.of(HadoopConfiguration.load(config))
        for application_id in abandoned_spark_applications(web.living, client.report):
            web.kill(application_id)
            log.debug("ended %s, whose own application has ended", application_id)
    except YarnError as error:
        log.debug("Spark's applications of ended applications cannot be ended: %s", error)


def abandoned_spark_applications(living: Living, report_of: Callable[[str], ApplicationReport]) -> list[str]:
    """Ids of Spark's applications of ours whose own application has ended, oldest first."""
    found = []
    for application_id, tags in living(TAG):
        owners = [tag for tag in tags if _APPLICATION.fullmatch(tag)]
        if owners and all(_has_ended(report_of, owner) for owner in owners):
            found.append(application_id)
    return sorted(found)


def _has_ended(report_of: Callable[[str], ApplicationReport], application_id: str) -> bool:
    try:
        return report_of(application_id).state.has_ended
    except ApplicationNotFoundError:
        # Of another YARN, or forgotten: nobody knows.
        return False
