"""On a cluster that asks for Kerberos: a login by keytab, an application whose containers and Spark's work on HDFS by
tokens, and what is said where nothing lets the client in. The cluster and its KDC are this module's own.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.hadoop import configuration, kerberos
from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import Layout
from tests.yarn.batch.bounded_jobs import CONFIGURATION_ON_YARN, sparks
from tests.yarn.clusters_of_runs import cluster_of_run
from tests.yarn.commands import ENDLESS, Commands, commands_in
from tests.yarn.conftest import note_applications
from tests.yarn.waiting import GRACE, until
from yarrow.runtime.common.clock import SystemClock

#: A secured cluster that runs already.
SHARED = "YARROW_SECURED_HADOOP_DIRECTORY"
KEYTAB, PRINCIPAL = "security.kerberos.login.keytab", "security.kerberos.login.principal"
#: The NameNode's audit log names the user so, if a token of the user was the login.
BY_TOKEN = f"{kerberos.USER} (auth:TOKEN)"
#: Seconds for which tokens last in `short_lived_tokens`: longer than an application takes to start.
LIFETIME_SECONDS = 90
#: A stream that leaves files, then a bounded job on them, whose tasks are in Spark's executors.
SUMS = """
import sys, time
from yarrow.common import Encoder, Types, WatermarkStrategy
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink, FileSource
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

folder = sys.argv[1]
rows = Types.ROW_NAMED(["k", "v"], [Types.LONG(), Types.LONG()])
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.enable_checkpointing(300)
def slowly(number):
    time.sleep(0.01)
    return number % 7, number
numbers = env.from_sequence(1, 500).map(slowly, rows)
numbers.sink_to(FileSink.for_bulk_format(folder + "/numbers", ParquetBulkWriters.for_row_type(rows)).build())
env.execute("numbers")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), folder + "/numbers").build()
sums = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").key_by("k").aggregate([("v", "sum")])
sums = sums.to_rows(as_tuple=True).map(lambda row: f"sum {row[0]} {row[1]} by {sys.base_prefix}", Types.STRING())
sums.print()
sums.sink_to(FileSink.for_row_format(folder + "/sums", Encoder.simple_string_encoder()).build())
env.execute("sums")
"""

#: A bounded job whose rows reach its sink, in an executor, when the tokens of the submission have ended.
LATE = """
import sys, time
from yarrow.common import Encoder, Types
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink

folder, seconds = sys.argv[1], float(sys.argv[2])
# This runs in a container, which has its tokens already.
end = time.time() + seconds
def wait_for_end(number):
    while time.time() < end:
        time.sleep(0.2)
    return f"late {number}"
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
late = env.from_sequence(1, 3).map(wait_for_end, Types.STRING())
late.sink_to(FileSink.for_row_format(folder + "/late", Encoder.simple_string_encoder()).build())
env.execute("late")
"""


@pytest.fixture(scope="module")
def hadoop() -> Iterator[HadoopCluster]:
    """The secured cluster."""
    with cluster_of_run(SHARED, secured=True) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def leaves_nothing_on_the_cluster(hadoop: HadoopCluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """No process of a container outlives a test; files are seen by who may log in alone."""
    note_applications(hadoop, request.node)
    yield
    until(lambda: not hadoop.container_processes(), GRACE, "the containers' end")
    unended = [entry["id"] for entry in hadoop.applications(("NEW", "SUBMITTED", "ACCEPTED", "RUNNING"))]
    assert not unended


def login(hadoop: HadoopCluster) -> dict[str, str]:
    return {KEYTAB: str(kerberos.keytab(Layout(hadoop.directory))), PRINCIPAL: kerberos.USER}


@contextmanager
def logging_in(hadoop: HadoopCluster, folder: Path, more: Mapping[str, str]) -> Iterator[Commands]:
    """Commands that log in by the keytab alone."""
    with commands_in(hadoop, folder, {**login(hadoop), **more}) as commands:
        # Nobody's own ticket cache counts.
        commands.environment["KRB5CCNAME"] = str(folder / "no-tickets")
        yield commands


@pytest.fixture
def yarrow(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[Commands]:
    with logging_in(hadoop, tmp_path, {}) as commands:
        yield commands


@dataclass(frozen=True)
class Ended:
    """An application of both jobs of SUMS that has ended, and its folder in the user's on HDFS."""

    hadoop: HadoopCluster
    id: str
    folder: str

    @property
    def audit(self) -> str:
        """The NameNode's own record: who did what, and by what."""
        return self._log("namenode")

    @property
    def resource_manager_log(self) -> str:
        return self._log("resourcemanager")

    def _log(self, daemon: str) -> str:
        log = self.hadoop.directory / "logs" / f"{daemon}.log"
        return log.read_text(encoding="utf-8", errors="replace")

    def doers(self, command: str, path: str) -> set[str]:
        """Users, with their kinds of login, that the audit log names for a command on paths of the user.

        `path` is a pattern.
        """
        line = rf"ugi=(\S+ \S+)\t.*cmd={command}\tsrc=/user/{kerberos.USER_NAME}/{path}\t"
        return set(re.findall(line, self.audit))


@pytest.fixture(scope="module")
def ended(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory, written_classes: None) -> Ended:
    """One application for the tests of what it left."""
    return run_sums(hadoop, tmp_path_factory.mktemp("secured"), CONFIGURATION_ON_YARN)


def run_sums(hadoop: HadoopCluster, directory: Path, settings: Mapping[str, str]) -> Ended:
    """Runs both jobs of SUMS in one application."""
    with logging_in(hadoop, directory, settings) as yarrow:
        (yarrow.folder / "sums.py").write_text(SUMS)
        folder = yarrow.name("sums")
        url = f"{hadoop.hdfs_url}/user/{kerberos.USER_NAME}/{folder}"
        options = {
            "yarn.application.name": yarrow.name("secured"),
            "execution.checkpointing.dir": f"{url}/checkpoints",
        }
        flags = [flag for key, value in options.items() for flag in ("-D", f"{key}={value}")]
        target = ("run-application", "-t", "yarn-application")
        application = yarrow.ok(*target, *flags, "sums.py", url).application
        yarrow.final_status(application)
        return Ended(hadoop, application, folder)


def test_a_job_checkpoints_by_the_tokens_of_its_containers(ended: Ended) -> None:
    report = ended.hadoop.application(ended.id)
    assert (report["user"], report["finalStatus"]) == (kerberos.USER_NAME, "SUCCEEDED")

    path = rf"{ended.folder}/checkpoints/\S+/chk-\d+/\S+"
    assert ended.doers("create", path) == {BY_TOKEN}
    assert len(set(re.findall(rf"cmd=create\tsrc=\S+/{ended.folder}/\S+/chk-(\d+)/", ended.audit))) >= 3

    logs = ended.hadoop.container_logs(ended.id)
    assert any("jobmanager.log" in name for name in logs)
    assert not [name for name, text in logs.items() if re.search(r"delegation=(?!\*)", text)]
    # The files of the application went with it.
    left = rf"cmd=delete\tsrc=/user/{kerberos.USER_NAME}/\.skein/{ended.id}"
    until(lambda: re.search(left, ended.audit) is not None, GRACE, "its files are gone")


def test_sparks_executors_read_and_write_by_the_same_tokens(ended: Ended) -> None:
    (spark,) = sparks(ended.hadoop, ended.id)
    assert (spark["user"], spark["finalStatus"]) == (kerberos.USER_NAME, "SUCCEEDED")
    # YARN knows the token of the first application, and does not end it with Spark's.
    known = rf"{spark['id']} found existing hdfs token Kind: HDFS_DELEGATION_TOKEN.*owner={kerberos.USER},"
    assert re.search(known, ended.resource_manager_log)

    # Java of the driver brings what executors need, then these read columns, and their sinks write.
    assert ended.doers("mkdirs", rf"\.skein/{ended.id}/\S+/{spark['id']}") == {BY_TOKEN}
    assert ended.doers("open", rf"{ended.folder}/numbers/\S+") == {BY_TOKEN}
    for command in ("create", "rename"):
        assert ended.doers(command, rf"{ended.folder}/sums/\S+") == {BY_TOKEN}

    logs = ended.hadoop.container_logs(ended.id) | ended.hadoop.container_logs(str(spark["id"]))
    printed = "\n".join(text for name, text in logs.items() if "jobmanager.log" in name)
    sums = {(int(key), int(value)) for key, value in re.findall(r"printed: sum (\d) (\d+) by", printed)}
    assert sums == {(key, sum(n for n in range(1, 501) if n % 7 == key)) for key in range(7)}
    # No log of any container has a token.
    assert any("stderr" in name for name in logs)
    assert not [name for name, text in logs.items() if re.search(r"delegation=(?!\*)", text)]


@pytest.mark.soak
def test_a_packed_environment_comes_to_all_containers_by_tokens(
    hadoop: HadoopCluster, tmp_path: Path, written_classes: None
) -> None:
    """Packing takes minutes of a busy machine; what runs in it is the application of the tests above."""
    ended = run_sums(hadoop, tmp_path, {**CONFIGURATION_ON_YARN, "yarn.environment": "auto"})
    assert hadoop.application(ended.id)["finalStatus"] == "SUCCEEDED"
    (spark,) = sparks(hadoop, ended.id)
    assert spark["finalStatus"] == "SUCCEEDED"
    logs = hadoop.container_logs(ended.id)
    printed = "\n".join(text for name, text in logs.items() if "jobmanager.log" in name)
    # Python of the executors is that of the archive, which YARN has brought into their containers.
    prefixes = re.findall(r"printed: sum \d \d+ by (\S+)", printed)
    assert len(prefixes) == 7
    assert {re.sub(r".*/container_[^/]+/", "", prefix) for prefix in prefixes} == {"environment"}
    assert BY_TOKEN in ended.doers("open", r"\.yarrow/environments/\S+")


def test_the_doctor_logs_in_and_writes(yarrow: Commands) -> None:
    done = yarrow.ok("doctor")
    assert f"kerberos: {kerberos.USER}" in done.out
    assert re.search(rf"OK +hdfs: hdfs://\S+/user/{kerberos.USER_NAME}/\.yarrow can be written", done.out)


@pytest.mark.soak
def test_a_session_says_how_long_its_tokens_last(yarrow: Commands) -> None:
    # With a keytab the master replaces tokens, and nothing ends.
    keeps = ("-D", "yarn.security.kerberos.ship-local-keytab=false")
    session = yarrow.ok("session", "-d", *keeps, "-nm", yarrow.name("tokens")).application
    left = r"ends in \d+\.\d (days|hours), and the application has no newer one"
    assert re.search(rf"Its delegation token {left}", yarrow.ok("list", "-yid", session).err)
    asked = yarrow.ok("doctor").out
    assert re.search(rf"WARN +tokens: the delegation token of {session} \S+ {left}", asked), asked
    yarrow.ok("session", "-id", session, text="stop\n")
    assert yarrow.final_status(session) == "SUCCEEDED"
    assert "tokens:" not in yarrow.ok("doctor").out


@pytest.mark.parametrize("command", [("session", "-d"), ("run", "-t", "yarn-per-job", "doubles.py")])
def test_a_principal_without_a_key_is_named_in_a_sentence(yarrow: Commands, command: tuple[str, ...]) -> None:
    outcome = yarrow(command[0], "-D", f"{PRINCIPAL}=bob@{kerberos.REALM}", *command[1:])
    assert outcome.status == 1
    said = last_line(outcome.err)
    assert f"bob@{kerberos.REALM}" in said
    assert "the keytab holds no key of that principal" in said
    assert PRINCIPAL in said


@pytest.mark.soak
def test_without_a_ticket_the_settings_are_named(yarrow: Commands) -> None:
    lines = (yarrow.folder / "conf" / "config.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("security.kerberos")]
    (yarrow.folder / "conf" / "config.yaml").write_text("\n".join(kept))
    outcome = yarrow("session", "-d")
    assert outcome.status == 1
    said = last_line(outcome.err)
    assert "no valid ticket" in said
    assert "`kinit`" in said
    assert KEYTAB in said
    assert PRINCIPAL in said


def last_line(text: str) -> str:
    return [line for line in text.splitlines() if line.strip()][-1]


@pytest.fixture(scope="module")
def short_lived_tokens(hadoop: HadoopCluster) -> Iterator[None]:
    """HDFS ends each delegation token soon after its issue, whoever renews it."""
    site = hadoop.conf_dir / "hdfs-site.xml"
    usual = site.read_text()
    lifetime = str(1000 * LIFETIME_SECONDS)
    short = configuration.entries(
        {
            "dfs.namenode.delegation.token.max-lifetime": lifetime,
            "dfs.namenode.delegation.token.renew-interval": lifetime,
        }
    )
    restart_name_node(hadoop, usual.replace("</configuration>", f"{short}</configuration>"))
    yield
    restart_name_node(hadoop, usual)


def restart_name_node(hadoop: HadoopCluster, site: str) -> None:
    (hadoop.conf_dir / "hdfs-site.xml").write_text(site)
    hadoop.kill("namenode")
    hadoop.start("namenode")
    hadoop.wait_until_ready("namenode", "datanode")


def checkpoints_begun(audit: str, folder: str) -> Iterator[float]:
    """The times, in seconds since the epoch, at which files of checkpoints were made."""
    line = rf"(?m)^(\S+ \S+) .*cmd=create\tsrc=/user/{kerberos.USER_NAME}/{folder}/\S+/chk-\d+/"
    for found in re.finditer(line, audit):
        yield datetime.datetime.fromisoformat(found[1].replace(",", ".")).timestamp()


@dataclass(frozen=True)
class Outlived:
    """Two applications whose first tokens ended while they ran."""

    #: Logs of the endless job by the names of their files, from before its end.
    logs: Mapping[str, str]
    #: What the command said of the endless job behind the end of its first tokens.
    told: str
    #: The bounded job, on Spark's executors.
    late: Ended
    late_status: str


@pytest.fixture(scope="module")
def outlived(
    hadoop: HadoopCluster,
    short_lived_tokens: None,
    written_classes: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outlived:
    """Both run at the same time, since their tests wait for the end of tokens."""
    renewing = {
        "security.delegation.tokens.renewal.time-ratio": "0.4",
        "security.delegation.tokens.renewal.retry.backoff": "2 s",
        "heartbeat.interval": "1 s",
    }
    settings = {**CONFIGURATION_ON_YARN, **renewing}
    with logging_in(hadoop, tmp_path_factory.mktemp("late"), settings) as yarrow:
        (yarrow.folder / "late.py").write_text(LATE)
        folder = yarrow.name("late")
        url = f"{hadoop.hdfs_url}/user/{kerberos.USER_NAME}/{folder}"
        arguments = ("-D", f"yarn.application.name={folder}", "late.py", url, str(LIFETIME_SECONDS + 5))
        late = yarrow.ok("run-application", "-t", "yarn-application", *arguments).application
        settings = {**renewing, "execution.checkpointing.interval": "1 s"}
        logs, told = endless_behind_its_tokens(hadoop, tmp_path_factory.mktemp("renewed"), settings)
        return Outlived(logs, told, Ended(hadoop, late, folder), yarrow.final_status(late))


def endless_behind_its_tokens(
    hadoop: HadoopCluster, directory: Path, settings: Mapping[str, str]
) -> tuple[dict[str, str], str]:
    """Runs an endless job until a checkpoint behind the end of its first tokens; its logs, and what `list` says."""
    with logging_in(hadoop, directory, settings) as yarrow:
        folder = yarrow.name("renewed")
        url = f"{hadoop.hdfs_url}/user/{kerberos.USER_NAME}/{folder}/checkpoints"
        (yarrow.folder / "endless.py").write_text(ENDLESS)
        options = ("-D", f"execution.checkpointing.dir={url}", "-D", f"yarn.application.name={folder}")
        started = yarrow.ok("run", "-d", "-t", "yarn-per-job", *options, "endless.py")
        end = SystemClock().epoch_ms() / 1000 + LIFETIME_SECONDS
        log = hadoop.directory / "logs" / "namenode.log"

        def is_later() -> bool:
            assert yarrow.state(started.application) == "RUNNING", hadoop.container_logs(started.application)
            return max(checkpoints_begun(log.read_text(errors="replace"), folder), default=0.0) > end

        until(is_later, GRACE, "a checkpoint behind the end of the first tokens")
        told = yarrow.ok("list", "-yid", started.application).err
        logs = hadoop.container_logs(started.application)
        yarrow.ok("cancel", "-yid", started.application, started.job)
        yarrow.final_status(started.application)
    return logs, told


def test_a_job_outlives_its_first_tokens_by_those_that_the_master_gets(outlived: Outlived) -> None:
    assert "delegation token" not in outlived.told
    (master,) = [text for name, text in outlived.logs.items() if "jobmanager.log" in name]
    hdfs = re.escape(outlived.late.hadoop.hdfs_url[7:])
    assert re.search(rf"new delegation tokens for hdfs://{hdfs}; the next ones in", master)
    assert any(re.search(r"new delegation tokens \(\d\) are in use", text) for text in outlived.logs.values())
    assert not [name for name, text in outlived.logs.items() if re.search(r"delegation=(?!\*)", text)]


def test_sparks_executors_outlive_their_first_tokens(outlived: Outlived) -> None:
    ended, hadoop = outlived.late, outlived.late.hadoop
    assert outlived.late_status == "SUCCEEDED", hadoop.container_logs(ended.id)
    # Python in an executor writes, and the SparkDriver commits.
    path = rf"{ended.folder}/late/\S+"
    for command in ("create", "rename"):
        assert ended.doers(command, path) == {BY_TOKEN}
    # Java of the driver removes what it has put onto HDFS for Spark's application.
    (spark,) = sparks(hadoop, ended.id)
    staged = rf"\.skein/{ended.id}/\S+/{spark['id']}"
    until(lambda: ended.doers("delete", staged) == {BY_TOKEN}, GRACE, "Spark's files are gone")
    logs = hadoop.container_logs(ended.id) | hadoop.container_logs(str(spark["id"]))
    assert any("Java of Spark's executors gets the new delegation tokens" in text for text in logs.values())
    assert not [name for name, text in logs.items() if re.search(r"delegation=(?!\*)", text)]
