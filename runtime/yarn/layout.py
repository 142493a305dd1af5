"""Names shared by client, ApplicationMaster, TaskExecutors and SparkDrivers of one application.

They are files in a container's folder, environment variables, and keys of the application's key-value store.

Owner: none; constants only. No value that stands in an environment variable or in the key-value store is a secret.
"""

from __future__ import annotations

from typing import Final

#: Name of the Skein service whose containers are TaskExecutors.
TASK_EXECUTOR_SERVICE: Final = "taskexecutor"
#: Name of the Skein service whose containers are SparkDrivers of bounded jobs.
SPARK_DRIVER_SERVICE: Final = "spark-driver"

# Files and folders, relative to a container's working directory.

#: The application's description (ApplicationDescription as JSON); in every container; no secret in it.
DESCRIPTION_FILE: Final = "yarrow-application.json"
#: MasterSecrets, msgpack; in the master's container only.
MASTER_SECRETS_FILE: Final = "yarrow-master.secret"
#: ContainerSecrets, msgpack; in the containers of TaskExecutors only.
TASK_EXECUTOR_SECRETS_FILE: Final = "yarrow-taskexecutor.secret"
#: ContainerSecrets, msgpack; in the containers of SparkDrivers only.
SPARK_DRIVER_SECRETS_FILE: Final = "yarrow-sparkdriver.secret"
#: The job of a per-job application, with its files: runtime/yarn/packed_job.py writes and reads it.
JOB_GRAPH_FILE: Final = "job.graph"
#: The archive of pages that REST shows; in the master's container only, and only where the client has one.
WEB_PAGES_FILE: Final = "yarrow-web-pages.jar"
#: Folder of the unpacked environment archive (interpreter, engine, user's packages).
ENVIRONMENT_FOLDER: Final = "environment"
#: The script that stands for the interpreter where the environment comes as plain archives.
START_FILE: Final = "yarrow-python"
#: Folder of the unpacked jars of Spark, in the containers of SparkDrivers; its archive has them at its root.
SPARK_JARS_FOLDER: Final = "spark-jars"
#: Folder with the program and its files (application mode) and the content of `yarn.provided.usrlib.dir`.
USER_FOLDER: Final = "usrlib"

# Environment variables of a TaskExecutor's container.

#: The ResourceID that the ResourceManager knows the TaskExecutor by.
RESOURCE_ID: Final = "YARROW_RESOURCE_ID"
#: Address and fencing token of the ResourceManager that asked for the container; with high availability the
#: TaskExecutor follows the leader in ZooKeeper and takes these as where to begin.
RESOURCE_MANAGER_ADDRESS: Final = "YARROW_RESOURCE_MANAGER_ADDRESS"
RESOURCE_MANAGER_ID: Final = "YARROW_RESOURCE_MANAGER_ID"

# Environment variables of a SparkDriver's container.

#: The ResourceID that the ResourceManager knows the SparkDriver by.
SPARK_DRIVER_ID: Final = "YARROW_SPARK_DRIVER_ID"
#: The bounded job, and address and fencing token of its BatchJobMaster.
JOB_ID: Final = "YARROW_JOB_ID"
JOB_MASTER_ADDRESS: Final = "YARROW_JOB_MASTER_ADDRESS"
JOB_MASTER_ID: Final = "YARROW_JOB_MASTER_ID"

# Keys of the application's key-value store (Skein's; lives in the memory of the present attempt).

#: `http://host:port` of REST for clients with a token; set when REST answers.
KV_REST_ADDRESS: Final = "yarrow.rest.address"
#: A sentence about the containers that the application waits for; empty when it waits for none.
KV_WAITING_FOR: Final = "yarrow.waiting-for"
#: Number of the present attempt, and how many there may be, as `2/2`.
KV_ATTEMPT: Final = "yarrow.attempt"

#: The beginning of a client's temporary folders: files of a deployment, secrets among them, and Skein's
#: driver.
SUBMISSION_FOLDER: Final = "yarrow-submission-"
DRIVER_FOLDER: Final = "yarrow-skein-driver-"
