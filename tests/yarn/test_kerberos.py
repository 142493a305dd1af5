"""On a cluster that asks for Kerberos: a login by keytab, an application with checkpoints on HDFS by its containers'
tokens, and what is said where nothing lets the client in. The cluster and its KDC are this module's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hadoop import kerberos
from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import Layout
from tests.yarn.clusters_of_runs import cluster_of_run
from tests.yarn.commands import Commands, commands_in
from tests.yarn.conftest import note_applications
from tests.yarn.waiting import GRACE, until

#: A secured cluster that runs already.
SHARED = "YARROW_SECURED_HADOOP_DIRECTORY"
KEYTAB, PRINCIPAL = "security.kerberos.login.keytab", "security.kerberos.login.principal"
SUMS = """
import time
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.enable_checkpointing(300)
def slowly(number):
    time.sleep(0.01)
    return number
env.from_sequence(1, 500).map(slowly).key_by(lambda n: n % 7).reduce(lambda a, b: a + b).print()
env.execute("sums")
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


@pytest.fixture
def keytab(hadoop: HadoopCluster) -> Path:
    return kerberos.keytab(Layout(hadoop.directory))


@pytest.fixture
def yarrow(hadoop: HadoopCluster, keytab: Path, tmp_path: Path) -> Iterator[Commands]:
    login = {KEYTAB: str(keytab), PRINCIPAL: kerberos.USER}
    with commands_in(hadoop, tmp_path, login) as commands:
        # Nobody's own ticket cache counts.
        commands.environment["KRB5CCNAME"] = str(tmp_path / "no-tickets")
        yield commands


def test_a_job_checkpoints_by_the_tokens_of_its_containers(yarrow: Commands, hadoop: HadoopCluster) -> None:
    (yarrow.folder / "sums.py").write_text(SUMS)
    folder = f"/user/{kerberos.USER_NAME}/{yarrow.name('checkpoints')}"
    outcome = yarrow.ok(
        "run-application",
        "-t",
        "yarn-application",
        "-D",
        f"yarn.application.name={yarrow.name('secured')}",
        "-D",
        "execution.attached=true",
        "-D",
        f"execution.checkpointing.dir={hadoop.hdfs_url}{folder}",
        "sums.py",
    )
    report = hadoop.application(outcome.application)
    assert (report["user"], report["finalStatus"]) == (kerberos.USER_NAME, "SUCCEEDED")

    # The NameNode's own record: who wrote checkpoints, and by what.
    record = (hadoop.directory / "logs" / "namenode.log").read_text(encoding="utf-8", errors="replace")
    created = re.findall(rf"ugi=(\S+ \S+)\t.*cmd=create\tsrc={folder}/\S+/chk-(\d+)/", record)
    assert {who for who, _ in created} == {f"{kerberos.USER} (auth:TOKEN)"}
    assert len({checkpoint for _, checkpoint in created}) >= 3

    logs = hadoop.container_logs(outcome.application)
    assert any("jobmanager.log" in name for name in logs)
    assert not [name for name, text in logs.items() if re.search(r"delegation=(?!\*)", text)]
    # The files of the application went with it.
    left = re.findall(rf"cmd=delete\tsrc=/user/{kerberos.USER_NAME}/\.skein/{outcome.application}", record)
    assert left


def test_the_doctor_logs_in_and_writes(yarrow: Commands) -> None:
    done = yarrow.ok("doctor")
    assert f"kerberos: {kerberos.USER}" in done.out
    assert re.search(rf"OK +hdfs: hdfs://\S+/user/{kerberos.USER_NAME}/\.yarrow can be written", done.out)


@pytest.mark.soak
def test_a_session_says_how_long_its_tokens_last(yarrow: Commands) -> None:
    session = yarrow.ok("session", "-d", "-nm", yarrow.name("tokens")).application
    left = r"ends in \d+\.\d (days|hours), and nothing renews it beyond that"
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
