"""The folder on HDFS of applications' files: below the user's home, or as `yarn.staging-directory` says.

Owner: any thread; blocking only in reading Hadoop's configuration files, and where Kerberos decides who the user is
in asking HDFS.
"""

from __future__ import annotations

import getpass
import os
import posixpath
from urllib.parse import urlsplit

from yarrow.runtime.common.paths import join, scheme_of
from yarrow.runtime.config.options import cluster, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import configuration_folder, hadoop_configuration
from yarrow.runtime.fs.webhdfs import WebHdfsFileSystem
from yarrow.runtime.fs.webhdfs_credentials import is_secured
from yarrow.runtime.yarn.gateways import YarnError

#: Below the staging directory; ours alone.
FOLDER = ".yarrow"
#: Below the user's home; Skein's.
_APPLICATIONS = ".skein"


def hadoop_user() -> str:
    """Whom Hadoop takes this process for; with Kerberos HDFS is asked."""
    if is_secured(hadoop_configuration()):
        return posixpath.basename(home_directory())
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def home_directory() -> str:
    """The user's on HDFS, as hdfs:// URL: below it lie the files of applications."""
    root = default_file_system()
    if is_secured(hadoop_configuration()):
        return WebHdfsFileSystem.for_path(root).home()
    return join(root, "user", hadoop_user())


def applications_folder() -> str:
    """Where Skein keeps the files of each of the user's applications, in a folder by its id, until it has ended."""
    return join(home_directory(), _APPLICATIONS)


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
        return join(home_directory(), FOLDER)
    if scheme_of(directory) != "hdfs":
        if "://" in directory or not directory.startswith("/"):
            raise YarnError(
                f"{yarn.STAGING_DIRECTORY.key} is {directory!r}, which nodes cannot read from: name a directory on"
                " HDFS, hdfs://host:port/folder."
            )
        # As Hadoop reads a path without a scheme.
        directory = default_file_system() + directory
    return join(absolute_hdfs_path(directory), FOLDER)
