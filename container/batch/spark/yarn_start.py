"""The start of a driver's Spark on YARN: where Hadoop's configuration is, and what its master hears meanwhile.

Owner: the driver's loop; questions to YARN go to threads. Must not start Java.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from yarrow.container.batch.spark.kerberos_access import login_settings
from yarrow.container.batch.spark.yarn_settings import SparkOnYarn
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options import batch
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.bootstrap import SparkDriverBootstrap
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.spark_containers import STAGING_FOLDER, tags_of
from yarrow.runtime.yarn.staging_root import applications_folder, staging_root

_log = logging.getLogger(__name__)
#: Seconds between two questions why YARN grants nothing.
_LOOK: Final = 2.0


def spark_on_yarn(config: Settings, bootstrap: SparkDriverBootstrap) -> SparkOnYarn | None:
    """What Spark's application is given; None where `spark.master` is another one.

    Raises YarnError if no Hadoop cluster is named, it has no HDFS, or it asks for Kerberos and nothing lets Java in.
    """
    if config.get(batch.SPARK_MASTER) != batch.YARN:
        return None
    own = bootstrap.yarn_application
    hadoop = HadoopConfiguration.load(config)
    # Files of an application that is killed go with ours; without one the next deployment removes them.
    staging = join(applications_folder(), own) if own else join(staging_root(config), STAGING_FOLDER)
    return SparkOnYarn(
        hadoop=hadoop.folder.absolute(),
        resource_managers=tuple(hadoop.resource_manager_addresses()),
        staging=staging,
        tags=tags_of(own, bootstrap.job_id, bootstrap.driver_id),
        interpreter=sys.executable,
        jars=Path(bootstrap.spark_jars) if bootstrap.spark_jars else _jars_of_pyspark(),
        login=login_settings(config, hadoop, staging, os.environ),
    )


def addresses_for(spark: SparkOnYarn | None, host: str, bind_host: str) -> tuple[str, str]:
    """The driver's name for executors, and the address to listen at.

    A driver that knows only the loopback address takes that by which this host reaches YARN.
    """
    if spark is None or not _is_loopback(host):
        return host, bind_host
    for address in spark.resource_managers:
        name, _, port = address.rpartition(":")
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the system only chooses the way.
            probe.connect((name, int(port)))
            own = str(probe.getsockname()[0])
            return own, own
    return host, bind_host


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")


async def tell_what_is_awaited(
    waits_for: Callable[[], str], master: BatchJobMasterGateway, driver_id: ResourceID
) -> None:
    """Tells the master what YARN has not granted, whenever that changes, until it is cancelled."""
    told = ""
    while True:
        await asyncio.sleep(_LOOK)
        text = await asyncio.to_thread(waits_for)
        if text == told:
            continue
        try:
            await master.notify_not_enough_resources(driver_id, text)
        except YarrowError as error:
            _log.info("the BatchJobMaster did not hear what Spark waits for: %s", error)
        else:
            told = text
            _log.info("%s", text or "Spark waits for nothing on YARN any more")


def _jars_of_pyspark() -> Path:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None, "PySpark was checked before"
    return Path(found.origin).parent / "jars"
