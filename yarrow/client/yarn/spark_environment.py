"""The environment of Spark's executors on YARN, for bounded jobs of embedded and standalone clusters.

Owner: the client's thread that submits; blocking (packs and uploads, as a deployment on YARN does). Applications of
ours on YARN name the same files at their deployment. Must not start anything.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import msgspec

from yarrow.client.yarn.abandoned_files import abandoned_folders
from yarrow.client.yarn.environment.environment import prepare, spark_jars
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options import batch
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner, JobType
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.resource_manager_web import ResourceManagerWeb
from yarrow.runtime.yarn.spark_containers import STAGING_FOLDER, brings_python, shipped
from yarrow.runtime.yarn.staging_root import hadoop_user, staging_root

log = logging.getLogger(__name__)
#: Below that of the user, which Spark adds; it has a folder for each application.
_FOLDER_OF_SPARK = ".sparkStaging"


def say(text: str) -> None:
    """Tells the user what takes long; rows of the program go to standard output."""
    print(text, file=sys.stderr, flush=True)


def with_executors_environment(
    graph: JobGraph, config: Settings, tell: Callable[[str], None] = say
) -> JobGraph:
    """The job with the files on HDFS by which executors on YARN run this environment; other jobs as they are.

    Raises YarnError if no Hadoop cluster is named, FileSystemError if HDFS cannot be used.
    """
    if graph.job_type is not JobType.BATCH or graph.batch_runner is not BatchRunner.SPARK:
        return graph
    settings = config.overlay(Settings(graph.configuration, "the job"))
    values = settings.to_dict(redact=False)
    if settings.get(batch.SPARK_MASTER) != batch.YARN or brings_python(values):
        return graph
    hadoop = HadoopConfiguration.load(settings)
    use_hdfs_settings(HdfsSettings.of(settings, is_client=True))
    environment = prepare(settings, tell)
    keys = shipped(values, environment.archives, spark_jars(settings, tell))
    _remove_abandoned(settings, ResourceManagerWeb.of(hadoop))
    return msgspec.structs.replace(graph, configuration={**graph.configuration, **keys})


def staging_of_spark(config: Settings) -> str:
    """The hdfs:// URL below which Spark has a folder for each of its applications."""
    return join(staging_root(config), STAGING_FOLDER, hadoop_user(), _FOLDER_OF_SPARK)


def _remove_abandoned(config: Settings, web: ResourceManagerWeb) -> None:
    """Removes files of Spark's applications that were killed before they could."""
    try:
        home = staging_of_spark(config)
        for path in abandoned_folders(lambda name: web.application(name).report, home=home):
            file_system_for(path).delete(path, recursive=True)
            log.debug("removed %s, which a killed application of Spark had left behind", path)
    except (OSError, FileSystemError, YarnError) as error:
        log.debug("the files of Spark's ended applications on HDFS cannot be removed: %s", error)
