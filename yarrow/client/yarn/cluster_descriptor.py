"""YarnClusterDescriptor: makes applications on YARN and finds them again.

It is the client's side of session, job and program.

Owner: one client thread; every call blocks. A failed or interrupted deployment leaves nothing behind: no
application, no file on HDFS, no folder with secrets. Skein's driver is a JVM. A deployment starts it at once
in the background. `retrieve` starts it only if the ResourceManager's web server cannot be read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from yarrow.client.yarn.abandoned_cluster_data import is_kept_by_application_id, remove_ended, remove_one
from yarrow.client.yarn.abandoned_files import remove_abandoned
from yarrow.client.yarn.abandoned_spark import end_abandoned_spark
from yarrow.client.yarn.application_files import ApplicationFiles
from yarrow.client.yarn.attached_application import AttachedApplication
from yarrow.client.yarn.deployment import (
    AwaitedApplication,
    check_labels,
    check_resources,
    check_spark_driver,
)
from yarrow.client.yarn.environment.environment import PreparedEnvironment, demands, prepare, spark_jars
from yarrow.client.yarn.staging import StagedFiles, check_places, stage
from yarrow.client.yarn.submission import (
    ContainerContent,
    build_submission,
    divided,
    max_attempts,
    without_effect,
)
from yarrow.client.yarn.yarn_client import YarnClient
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.ids import IdFactory, RandomIdFactory
from yarrow.runtime.config.options import execution, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.client_folder import ClientFolder
from yarrow.runtime.fs.client_folder import remove_abandoned as remove_abandoned_folders
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner, JobType
from yarrow.runtime.ha.settings import is_highly_available
from yarrow.runtime.security.result_proof import result_key
from yarrow.runtime.yarn.application import (
    ApplicationDescription,
    ClientSecrets,
    DeploymentMode,
    ProgramDescription,
)
from yarrow.runtime.yarn.gateways import ApplicationSubmission, Resource, YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.hadoop_overlay import (
    LOG_SETTINGS,
    LOG_SETTINGS_FILE,
    OVERLAY_JAR,
    master_properties,
    write_overlay,
)
from yarrow.runtime.yarn.layout import (
    DESCRIPTION_FILE,
    DRIVER_FOLDER,
    JOB_GRAPH_FILE,
    MASTER_SECRETS_FILE,
    SPARK_DRIVER_SECRETS_FILE,
    SUBMISSION_FOLDER,
    TASK_EXECUTOR_SECRETS_FILE,
)
from yarrow.runtime.yarn.packed_job import pack_job
from yarrow.runtime.yarn.secrets import (
    ApplicationSecrets,
    make_secrets,
    with_keytab,
    with_own_certificates,
    write_private,
    write_secrets,
)
from yarrow.runtime.yarn.spark_containers import shipped
from yarrow.runtime.yarn.staging_root import applications_folder

log = logging.getLogger(__name__)

SESSION_NAME: Final = "Yarrow session cluster"
APPLICATION_NAME: Final = "Yarrow application cluster"
#: Seconds that YARN may take to kill an application.
_KILL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class YarnCluster:
    """An application whose REST answers."""

    application_id: str
    name: str
    #: `http://host:port`.
    rest_address: str
    rest_token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The parts of one deployment."""

    mode: DeploymentMode
    name: str
    attached: bool
    program: ProgramDescription | None = None
    packed_job: bytes = b""
    #: The packed job runs on Spark.
    needs_spark: bool = False

    @property
    def may_be_bounded(self) -> bool:
        """Whether a SparkDriver may be asked for."""
        return self.needs_spark or self.mode is not DeploymentMode.PER_JOB


class YarnClusterDescriptor:
    """Deploys applications by one configuration; close it at the end.

    `say` gets sentences for the user while something takes long.
    """

    def __init__(
        self,
        config: Settings,
        say: Callable[[str], None] = lambda text: None,
        clock: Clock | None = None,
        ids: IdFactory | None = None,
    ) -> None:
        self._config = config
        self._say = say
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIdFactory()
        self._hadoop = HadoopConfiguration.load(config)
        use_hdfs_settings(HdfsSettings.of(config, is_client=True))
        self.files = ApplicationFiles.of(config)
        self._clients: list[YarnClient] = []

    def deploy_session(self, attached: bool = False) -> YarnCluster:
        """Deploys a session that accepts jobs; with `attached` it ends when this client is gone."""
        name = self._config.get(yarn.APPLICATION_NAME) or SESSION_NAME
        return self._deploy(_Plan(mode=DeploymentMode.SESSION, name=name, attached=attached))

    def deploy_job(
        self, graph: JobGraph, files: Sequence[LocalFile] = (), attached: bool = False
    ) -> YarnCluster:
        """Deploys an application for one job, which ends with it."""
        return self._deploy(
            _Plan(
                mode=DeploymentMode.PER_JOB,
                name=self._config.get(yarn.APPLICATION_NAME) or graph.name,
                attached=attached,
                packed_job=pack_job(graph, files),
                needs_spark=graph.job_type is JobType.BATCH and graph.batch_runner is BatchRunner.SPARK,
            )
        )

    def deploy_application(self, program: ProgramDescription, attached: bool = False) -> YarnCluster:
        """Deploys an application whose master's container runs the program's `main()`."""
        name = self._config.get(yarn.APPLICATION_NAME) or APPLICATION_NAME
        return self._deploy(
            _Plan(mode=DeploymentMode.APPLICATION, name=name, attached=attached, program=program)
        )

    def retrieve(self, application_id: str) -> YarnCluster:
        """A running application of this user; between two attempts of its master it waits for the next one.

        Raises YarnError with the application's fate.
        """
        secrets = self.files.read_secrets(application_id)
        pair = (b"", b"") if secrets is None else (secrets.skein_certificate, secrets.skein_key)
        found = AttachedApplication(self.client(pair), self.files, self._say, self._clock)
        return self._cluster(*found.retrieve(application_id, secrets))

    def kill(self, application_id: str) -> None:
        """Kills an application, and removes the client's files of it."""
        client = self.client((b"", b""))
        client.kill(application_id)
        self._remove_stored(client, application_id)
        self.files.forget(application_id)

    def _remove_stored(self, client: YarnClient, application_id: str) -> None:
        """Removes data that a killed master could not remove; if YARN is slow, the next deployment does it."""
        if not is_kept_by_application_id(self._config):
            return
        pause, deadline = threading.Event(), self._clock.monotonic() + _KILL_SECONDS
        with suppress(YarnError):
            while not client.report(application_id).state.has_ended and self._clock.monotonic() < deadline:
                pause.wait(0.2)
        remove_one(self._config, application_id, client.report)

    def client(self, credentials: tuple[bytes, bytes]) -> YarnClient:
        """A client that closes with this object."""
        client = YarnClient(self._config, self._hadoop, credentials, self._clock)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Ends the processes that it started."""
        while self._clients:
            self._clients.pop().close()

    def __enter__(self) -> YarnClusterDescriptor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _deploy(self, plan: _Plan) -> YarnCluster:
        times = _Times(self._clock)
        check_places(self._config)
        for prefix in (SUBMISSION_FOLDER, DRIVER_FOLDER):
            remove_abandoned_folders(prefix=prefix)
        secrets = with_own_certificates(make_secrets(self._ids, self._clock), self._config)
        if self._hadoop.is_secured:
            secrets = with_keytab(secrets, self._config)
        client = self.client(secrets.skein)
        client.begin()
        for sentence in without_effect(self._config):
            self._say(sentence)
        client.check()
        self._check_with_yarn(client, plan)
        times.mark("checked")
        with ExitStack() as folder_removed:
            owned = ClientFolder(prefix=SUBMISSION_FOLDER)
            folder_removed.callback(owned.remove)
            folder = Path(owned.path)
            staged = stage(self._config, folder, plan.program)
            environment = prepare(self._config, self._say)
            jars = spark_jars(self._config, self._say) if plan.may_be_bounded else ()
            times.mark("environment")
            attempts = self._attempts(client.most_attempts())
            submission = self._submission(plan, secrets, environment, jars, staged, folder, attempts)
            times.mark("files")
            application_id = self._submit(client, submission)
            times.mark("submitted")
        try:
            kept = ClientSecrets(
                application_id=application_id,
                name=plan.name,
                rest_token=secrets.rest_token,
                skein_certificate=secrets.skein[0],
                skein_key=secrets.skein[1],
                result_key=result_key(secrets.data_secret),
            )
            self.files.write_secrets(kept)
            self.files.forget_ended(client.has_ended)
            remove_abandoned(client, application_id, self._clock)
            end_abandoned_spark(client, self._config)
            remove_ended(self._config, client.report)
            awaited = AwaitedApplication(
                client, application_id, submission, self._say, self._clock, demands(self._config)
            )
            address = awaited.rest_address(self._config.get(yarn.DEPLOYMENT_TIMEOUT).seconds)
            times.mark("REST")
            self.files.write_secrets(msgspec.structs.replace(kept, rest_address=address))
        except BaseException:
            self._undo(client, application_id)
            raise
        log.debug("Deployment of %s: %s", application_id, times)
        return self._cluster(kept, address)

    def _check_with_yarn(self, client: YarnClient, plan: _Plan) -> None:
        """Refuses requests that YARN would never grant, before an environment is packed and uploaded."""
        nothing = ContainerContent((), {}, "")
        planned = build_submission(self._config, plan.name, nothing, nothing, nothing)
        queues = client.leaf_queues()
        check_resources(planned, queues)
        if plan.needs_spark or self._config.get(execution.RUNTIME_MODE) is execution.RuntimeMode.BATCH:
            check_spark_driver(planned, queues)
        if planned.node_label or planned.task_executor.node_label:
            check_labels(planned, client.node_labels())

    def _submit(self, client: YarnClient, submission: ApplicationSubmission) -> str:
        """Submits on a thread of its own: an interrupt must not lose the id of an accepted application."""
        with ThreadPoolExecutor(1, "yarn-submit") as pool:
            submitted = pool.submit(client.submit, submission)
            try:
                return submitted.result()
            except KeyboardInterrupt:
                if submitted.exception() is None:
                    self._undo(client, submitted.result())
                raise

    def _undo(self, client: YarnClient, application_id: str) -> None:
        try:
            # Also for an ended one: a lost master could not remove its files from HDFS.
            client.kill(application_id, even_ended=True)
            self._remove_stored(client, application_id)
        except YarnError as error:
            self._say(f"{error} End it by `yarn application -kill {application_id}`.")
        self.files.forget(application_id)

    def _attempts(self, limit: int | None) -> int:
        wanted, attempts = max_attempts(self._config), max_attempts(self._config, limit)
        if attempts < wanted:
            self._say(
                f"YARN starts the ApplicationMaster {attempts} times at most (yarn.resourcemanager.am.max-attempts):"
                f" {yarn.APPLICATION_ATTEMPTS.key} {wanted} is lowered to that."
            )
        return attempts

    def _submission(
        self,
        plan: _Plan,
        secrets: ApplicationSecrets,
        environment: PreparedEnvironment,
        jars: Sequence[Resource],
        staged: StagedFiles,
        folder: Path,
        attempts: int,
    ) -> ApplicationSubmission:
        """Writes the application's files into `folder`, and the submission that names them."""
        configuration = staged.configuration
        if plan.may_be_bounded:
            configuration = configuration.overlay(
                shipped(configuration.to_dict(redact=False), (*environment.archives, *staged.both), jars)
            )
        shown, sensitive = divided(configuration)
        description = ApplicationDescription(
            mode=plan.mode,
            name=plan.name,
            configuration=shown,
            initial_task_executors=self._config.get(yarn.INITIAL_TASK_EXECUTORS),
            program=staged.program,
            attached=plan.attached,
            max_attempts=attempts,
            interpreter=environment.interpreter,
            environment=tuple(archive.source for archive in (*environment.archives, *jars)),
            applications_folder=self._applications_folder(attempts),
        )
        write_private(folder / DESCRIPTION_FILE, msgspec.json.encode(description))
        write_secrets(folder / MASTER_SECRETS_FILE, secrets.for_master(sensitive))
        write_secrets(folder / TASK_EXECUTOR_SECRETS_FILE, secrets.for_task_executor(sensitive))
        write_secrets(folder / SPARK_DRIVER_SECRETS_FILE, secrets.for_spark_driver(sensitive))
        both = [_resource(folder, DESCRIPTION_FILE), *environment.archives, *staged.both]
        write_overlay(folder / OVERLAY_JAR, master_properties(self._config))
        write_private(folder / LOG_SETTINGS_FILE, LOG_SETTINGS.encode())
        master = [*both, *staged.master]
        master += [_resource(folder, MASTER_SECRETS_FILE), _resource(folder, OVERLAY_JAR)]
        if plan.packed_job:
            write_private(folder / JOB_GRAPH_FILE, plan.packed_job)
            master.append(_resource(folder, JOB_GRAPH_FILE))
        task_executor = [*both, _resource(folder, TASK_EXECUTOR_SECRETS_FILE)]
        spark_driver = [*both, *jars, _resource(folder, SPARK_DRIVER_SECRETS_FILE)]
        return build_submission(
            self._config,
            plan.name,
            ContainerContent(master, environment.variables, environment.interpreter),
            ContainerContent(task_executor, environment.variables, environment.interpreter),
            ContainerContent(spark_driver, environment.variables, environment.interpreter),
            str(folder / LOG_SETTINGS_FILE),
        )

    def _applications_folder(self, attempts: int) -> str:
        """Folder in which an attempt records the application's end for later ones, without ZooKeeper."""
        if attempts == 1 or is_highly_available(self._config):
            return ""
        try:
            return applications_folder()
        except YarnError:
            # Applications' files are not on HDFS: later attempts run the application again.
            return ""

    @staticmethod
    def _cluster(secrets: ClientSecrets, address: str) -> YarnCluster:
        return YarnCluster(secrets.application_id, secrets.name, address, secrets.rest_token)


class _Times:
    """How long the parts of a deployment took."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self._parts: list[str] = []

    def mark(self, part: str) -> None:
        now = self._clock.monotonic()
        self._parts.append(f"{part} {now - self._last:.2f} s")
        self._last = now

    def __str__(self) -> str:
        return ", ".join(self._parts)


def _resource(folder: Path, name: str) -> Resource:
    return Resource(target=name, source=str(folder / name))
