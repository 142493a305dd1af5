"""Where on HDFS Yarrow keeps what applications need: below the user's home, or where `yarn.staging-directory` says.

Owner: any thread; blocking only in reading Hadoop's configuration files.
"""

from __future__ import annotations

import getpass
import os
from urllib.parse import urlsplit

from yarrow.runtime.config.options import cluster, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.file_system import join, scheme_of
from yarrow.runtime.fs.hdfs_settings import configuration_folder, hadoop_configuration
from yarrow.runtime.yarn.gateways import YarnError

#: Below the staging directory; ours alone.
FOLDER = ".yarrow"


def hadoop_user() -> str:
    """Who asks HDFS where nothing is secured."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def default_file_system() -> str:
    """`hdfs://host:port` of Hadoop's configuration. Raises YarnError where it names none."""
    configured = hadoop_configuration().get("fs.defaultFS", "")
    address = urlsplit(configured)
    if address.scheme != "hdfs" or not address.netloc:
        named = configuration_folder() or os.environ.get("HADOOP_CONF_DIR") or "not set"
        raise YarnError(
            f"No HDFS is known: core-site.xml in HADOOP_CONF_DIR ({named}) has fs.defaultFS"
            f" {configured or 'not set'}. Set HADOOP_CONF_DIR (or {cluster.HADOOP_CONF_DIR.key}) to the folder of the"
            f" cluster's core-site.xml, or {yarn.STAGING_DIRECTORY.key} to hdfs://host:port/folder."
        )
    return f"hdfs://{address.netloc}"


def absolute_hdfs_path(path: str) -> str:
    """An `hdfs:///path` with its name node; other paths as they are."""
    rest = path.removeprefix("hdfs://")
    return default_file_system() + rest if rest != path and rest.startswith("/") else path


def staging_root(config: Settings) -> str:
    """The folder, as hdfs:// URL. Raises YarnError for one that nodes cannot see."""
    directory = config.get(yarn.STAGING_DIRECTORY)
    if directory is None:
        return join(default_file_system(), "user", hadoop_user(), FOLDER)
    if scheme_of(directory) != "hdfs":
        if "://" in directory or not directory.startswith("/"):
            raise YarnError(
                f"{yarn.STAGING_DIRECTORY.key} is {directory!r}, which nodes cannot read from: name a directory on"
                " HDFS, hdfs://host:port/folder."
            )
        # As Hadoop reads a path without a scheme.
        directory = default_file_system() + directory
    return join(absolute_hdfs_path(directory), FOLDER)
