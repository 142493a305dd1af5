"""The SparkDriver of a YARN container: `python -m yarrow.container.process.yarn_spark_driver`.

Owner: its main thread. The application's description and the secrets of SparkDrivers lie in the container's folder. The
environment has the BatchJobMaster's address. It removes its own folder, and no file that YARN brought. Must not put a
secret into its arguments, environment or logs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from typing import Final

from yarrow.container.batch.spark.driver_main import run_process
from yarrow.container.launch.process_start import set_process_name
from yarrow.container.process.container_life import ContainerLife
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.config.options import rpc, security, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import PemIdentity, SparkDriverBootstrap
from yarrow.runtime.yarn.application import ContainerSecrets
from yarrow.runtime.yarn.container_files import ContainerFolder, read_container, request_of
from yarrow.runtime.yarn.layout import (
    JOB_ID,
    JOB_MASTER_ADDRESS,
    JOB_MASTER_ID,
    SPARK_DRIVER_ID,
    SPARK_DRIVER_SECRETS_FILE,
    SPARK_JARS_FOLDER,
)
from yarrow.runtime.yarn.spark_driver_shape import spark_driver_shape

#: Prefix of its log names: YARN shows them.
LOG_NAME: Final = "sparkdriver"
_WORKING_DIRECTORY: Final = "yarrow-sd-"
_VARIABLES: Final = (SPARK_DRIVER_ID, JOB_ID, JOB_MASTER_ADDRESS, JOB_MASTER_ID)


def bootstrap_of(
    config: Settings,
    secrets: ContainerSecrets,
    environment: Mapping[str, str],
    folder: ContainerFolder,
    working_directory: str,
) -> SparkDriverBootstrap:
    """The bootstrap of the driver, by the variables that the ResourceManager set for this container.

    Raises ConfigError, and ContainerFolderError with the missing variable.
    """
    values = request_of(environment, _VARIABLES)
    return SparkDriverBootstrap(
        application_id=secrets.application_secret_id,
        driver_id=ResourceID(values[SPARK_DRIVER_ID]),
        job_id=JobID(values[JOB_ID]),
        job_master_address=values[JOB_MASTER_ADDRESS],
        job_master_id=JobMasterID(values[JOB_MASTER_ID]),
        host=folder.host,
        bind_host=config.get(taskmanager.BIND_HOST) or folder.host,
        identity=secrets.identity if config.get(security.INTERNAL_ENABLED) else PemIdentity(),
        data_secret=secrets.data_secret,
        configuration=config.with_value(taskmanager.TMP_DIRS, (working_directory,)).to_dict(redact=False),
        log_directory=str(folder.log_directory),
        log_name=LOG_NAME,
        working_directory=working_directory,
        spark_jars=str(jars) if (jars := folder.path / SPARK_JARS_FOLDER).is_dir() else "",
        slots=spark_driver_shape(config).vcores,
        yarn_application=folder.application_id,
        max_message_bytes=config.get(rpc.MESSAGE_MAX_SIZE).bytes,
    )


def main() -> int:
    """Runs the process; its exit status is 0 when it was released, 1 when it failed."""
    set_process_name("yarrow-sparkdrv")
    working_directory = tempfile.mkdtemp(prefix=_WORKING_DIRECTORY, dir=os.getcwd())
    # Temporary files, also of C and user code, stay inside the container.
    os.environ["TMPDIR"] = tempfile.tempdir = working_directory
    remove_files = partial(shutil.rmtree, working_directory, ignore_errors=True)
    life = ContainerLife(remove_files)
    life.start()
    try:
        folder = ContainerFolder.of(os.environ)
        secrets, config = read_container(folder, SPARK_DRIVER_SECRETS_FILE)
        bootstrap = bootstrap_of(config, secrets, os.environ, folder, working_directory)
        return run_process(bootstrap, life.follow, reads_configuration=True)
    except YarrowError as error:
        print(f"the SparkDriver failed: {error}", file=sys.stderr)
        return 1
    finally:
        life.stop()
        remove_files()


if __name__ == "__main__":
    sys.exit(main())
