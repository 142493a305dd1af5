"""One session with a job on a real YARN: its secrets stand in files of mode 0600 and nowhere else; who may come in."""

from __future__ import annotations

import base64
import json
import os
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import user
from tests.yarn.commands import Commands, commands_in
from tests.yarn.highly_available import ClusterNodes, high_availability, is_stored, zookeeper_client
from tests.yarn.rest import client_secrets
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.yarn.application import ContainerSecrets, MasterSecrets
from yarrow.runtime.yarn.layout import DESCRIPTION_FILE, MASTER_SECRETS_FILE, TASK_EXECUTOR_SECRETS_FILE

#: The value of a key whose name says that it is secret, as a user's configuration file has it.
PLANTED = "planted-7c1e5a90"
#: The same by a key of the containers' environment is the user's own doing; no other key is in it.
SECRET_KEY = "s3.secret-key"
ROOT = "/yarrow-security"


@pytest.fixture
def yarrow(
    hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str, tmp_path: Path
) -> Iterator[Commands]:
    stored = high_availability(hadoop.zookeeper_quorum, ROOT, f"{hdfs_folder}/ha")
    with commands_in(hadoop, tmp_path, {**stored, SECRET_KEY: PLANTED}) as commands:
        yield commands


class Session:
    """A session whose job runs, and all secrets that there are of it."""

    def __init__(self, yarrow: Commands, hadoop: HadoopCluster) -> None:
        self.hadoop = hadoop
        self.outcome = yarrow.ok("session", "-d", "-nm", yarrow.name("security"))
        self.id = self.outcome.application
        self.job = yarrow.ok("run", "-d", "-yid", self.id, "endless.py").job
        self.client_file = yarrow.folder / "files" / f".yarrow-application-{self.id}"
        self.client = client_secrets(yarrow.folder / "files", self.id)
        yarrow.eventually(self.runs, "the job runs")
        self.master_file, self.worker_file = (
            self.files(name)[0] for name in (MASTER_SECRETS_FILE, TASK_EXECUTOR_SECRETS_FILE)
        )
        self.master = msgspec.msgpack.decode(self.master_file.read_bytes(), type=MasterSecrets)
        self.worker = msgspec.msgpack.decode(self.worker_file.read_bytes(), type=ContainerSecrets)

    def runs(self) -> bool:
        """Whether all tasks do."""
        return all(vertex["status"] == "RUNNING" for vertex in self.ask(f"/jobs/{self.job}")["vertices"])

    def files(self, name: str) -> list[Path]:
        """Files of that name in the folders of the application's containers."""
        folders = set()
        for process in self.hadoop.container_processes(self.id):
            try:
                folders.add(Path(os.readlink(f"/proc/{process.pid}/cwd")))
            except OSError:
                continue
        return [folder / name for folder in sorted(folders) if (folder / name).exists()]

    def text(
        self, path: str, method: str = "GET", token: str | None = None, base: str = ""
    ) -> tuple[int, str]:
        """Status and body of an answer."""
        request = urllib.request.Request(f"{base or self.client.rest_address}{path}", method=method)
        if not base:
            request.add_header(
                "Authorization", f"Bearer {self.client.rest_token if token is None else token}"
            )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def ask(self, path: str) -> Any:
        status, body = self.text(path)
        assert status == 200, body
        return json.loads(body)

    def needles(self) -> dict[str, bytes]:
        """What must be found nowhere, by what it is."""

        def key(pem: bytes) -> bytes:
            return pem.splitlines()[1]

        data = self.master.data_secret
        return {
            "the REST token": self.client.rest_token.encode(),
            "the value of a sensitive key": PLANTED.encode(),
            "the master's private key": key(self.master.identity.private_key),
            "the TaskExecutors' private key": key(self.worker.identity.private_key),
            "Skein's private key": key(self.client.skein_key),
            "the data secret": data,
            "the data secret in hexadecimal": data.hex().encode(),
            "the data secret in base64": base64.b64encode(data).rstrip(b"="),
        }

    def assert_clean(self, where: str, content: bytes | str) -> None:
        data = content.encode() if isinstance(content, str) else content
        for what, needle in self.needles().items():
            assert needle not in data, f"{what} stands in {where}"


def test_secrets_stand_in_their_files_only_and_entrances_keep(
    yarrow: Commands, hadoop: HadoopCluster, hdfs_folder: str
) -> None:
    session = Session(yarrow, hadoop)
    secrets_are_private_and_dealt_out_by_role(session)
    nothing_is_in_processes(session)
    nothing_is_in_what_others_may_read(session, yarrow)
    nothing_is_in_zookeeper(session, hadoop)
    nothing_is_in_the_description_on_hdfs(session, hadoop)
    the_token_opens_and_nothing_else_does(session)
    the_proxy_shows_and_changes_nothing(session, hadoop)
    assert yarrow.ok("token", session.id).out.strip() == session.client.rest_token
    yarrow.ok("session", "-id", session.id, text="stop\n")
    yarrow.eventually(lambda: yarrow.state(session.id) == "FINISHED", "the end")
    assert not session.client_file.exists()
    with zookeeper_client(hadoop.zookeeper_quorum) as zookeeper:
        nodes = ClusterNodes(zookeeper, f"{ROOT}/{session.id}")
        yarrow.eventually(lambda: not nodes.exists(), "nothing of it is left in ZooKeeper")
        zookeeper.delete(ROOT, recursive=True)
    yarrow.eventually(lambda: not is_stored(f"{hdfs_folder}/ha", session.id), "nor on HDFS")
    session.assert_clean("the logs of the whole application", str(hadoop.container_logs(session.id)))


def secrets_are_private_and_dealt_out_by_role(session: Session) -> None:
    for path in (session.client_file, session.master_file, session.worker_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(session.client_file.parent.stat().st_mode) == 0o700
    assert not (session.master_file.parent / TASK_EXECUTOR_SECRETS_FILE).exists()
    assert not (session.worker_file.parent / MASTER_SECRETS_FILE).exists()
    worker = session.worker_file.read_bytes()
    for secret in (session.client.rest_token.encode(), session.master.rest_token_hash):
        assert secret not in worker
    assert session.client.rest_token.encode() not in session.master_file.read_bytes()
    assert session.master.identity != PemIdentity()
    assert session.master.identity.role is not session.worker.identity.role
    assert session.master.sensitive_configuration[SECRET_KEY] == PLANTED


def nothing_is_in_processes(session: Session) -> None:
    processes = session.hadoop.container_processes(session.id)
    # Java and Python of the master; supervisor, template and worker of the TaskExecutor.
    assert len(processes) >= 5
    for process in processes:
        for name in ("environ", "cmdline"):
            try:
                content = Path(f"/proc/{process.pid}/{name}").read_bytes()
            except OSError:
                continue
            session.assert_clean(f"{name} of {process.command}", content)


def nothing_is_in_what_others_may_read(session: Session, yarrow: Commands) -> None:
    session.assert_clean("the output of `yarrow session`", session.outcome.out + session.outcome.err)
    for name, text in session.hadoop.container_logs(session.id, 10_000_000).items():
        session.assert_clean(name, text)
    session.assert_clean("YARN's report", json.dumps(session.hadoop.application(session.id)))
    configuration = session.ask("/jobmanager/config")
    assert {"key": SECRET_KEY, "value": "******"} in configuration
    task_executor = session.ask("/taskmanagers")["taskmanagers"][0]["id"]
    paths = ["/config", "/jobmanager/config", "/jobmanager/environment", "/jobmanager/logs", "/overview"]
    paths += ["/taskmanagers", f"/taskmanagers/{task_executor}", f"/jobs/{session.job}/config"]
    paths += [f"/jobs/{session.job}", f"/nothing/{session.job}", "/jobs/no-id", "/taskmanagers/none/log"]
    for path in paths:
        session.assert_clean(path, session.text(path)[1])
    for process in ("/jobmanager", f"/taskmanagers/{task_executor}"):
        logged = session.text(f"{process}/log")
        assert logged[0] == 200 and logged[1].strip(), f"the log of {process}"
        printed = session.text(f"{process}/stdout")
        assert printed[0] == 200, f"the output of {process}"
        session.assert_clean(f"log and output of {process}", logged[1] + printed[1])
    wrong = yarrow("list", "-yid", session.id, "-D", "rest.port=none", "-D", f"{SECRET_KEY}=")
    session.assert_clean("an error message", wrong.out + wrong.err)


def nothing_is_in_zookeeper(session: Session, hadoop: HadoopCluster) -> None:
    with zookeeper_client(hadoop.zookeeper_quorum) as client:
        seen = []

        def look(path: str) -> None:
            data, _ = client.get(path)
            session.assert_clean(f"the znode {path}", path.encode() + b" " + data)
            seen.append(path)
            for child in client.get_children(path):
                look(f"{path.rstrip('/')}/{child}")

        for child in client.get_children("/"):
            if child != "zookeeper":
                look(f"/{child}")
        assert any(session.id in path for path in seen)


def nothing_is_in_the_description_on_hdfs(session: Session, hadoop: HadoopCluster) -> None:
    folder = f"/user/{user()}/.skein/{session.id}"
    status = web_hdfs(hadoop, folder, "GETFILESTATUS")
    assert json.loads(status)["FileStatus"]["permission"] == "700"
    listed = json.loads(web_hdfs(hadoop, folder, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
    names: list[str] = []
    for entry in listed:
        inner = f"{folder}/{entry['pathSuffix']}"
        if entry["type"] == "DIRECTORY":
            files = json.loads(web_hdfs(hadoop, inner, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
            names += [f"{inner}/{file['pathSuffix']}" for file in files]
        else:
            names.append(inner)
    descriptions = [name for name in names if name.endswith(DESCRIPTION_FILE)]
    assert descriptions
    for name in descriptions:
        session.assert_clean(name, web_hdfs(hadoop, name, "OPEN"))
    session.assert_clean(
        "the description in the container", (session.master_file.parent / DESCRIPTION_FILE).read_bytes()
    )


def web_hdfs(hadoop: HadoopCluster, path: str, operation: str) -> bytes:
    url = f"{hadoop.name_node_web}/webhdfs/v1{path}?op={operation}&user.name={user()}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def the_token_opens_and_nothing_else_does(session: Session) -> None:
    assert session.text("/overview")[0] == 200
    for path in ("/overview", "/jobmanager/log", "/docs", f"/jobs/{session.job}/yarn-cancel"):
        status, body = session.text(path, token="guessed")
        assert status == 401, path
        assert "yarrow token" in body
    assert session.text(f"/jobs/{session.job}", "PATCH", token="")[0] == 401
    assert session.ask(f"/jobs/{session.job}")["state"] == "RUNNING"


def the_proxy_shows_and_changes_nothing(session: Session, hadoop: HadoopCluster) -> None:
    tracked = f"{hadoop.resource_manager_web}/proxy/{session.id}"
    status, body = session.text("/", base=tracked)
    assert status == 200, body
    assert "./pages/yarrow/" in body
    page = f"{tracked}/pages/yarrow"
    status, body = session.text("/overview", base=page)
    assert status == 200, body
    assert json.loads(body)["jobs-running"] == 1
    status, body = session.text("/docs", base=page)
    assert status == 200
    # Relative, so that the browser stays below the page's prefix.
    assert 'fetch("openapi.json")' in body
    assert session.text("/openapi.json", base=page)[0] == 200
    session.assert_clean("the page", session.text("/jobmanager/config", base=page)[1])
    for method, path in (
        ("PATCH", f"/jobs/{session.job}"),
        ("DELETE", "/cluster"),
        ("POST", "/jobs"),
        ("PUT", f"/jobs/{session.job}/resource-requirements"),
        ("GET", f"/jobs/{session.job}/yarn-cancel"),
        ("GET", f"/jobs/{session.job}/yarn-stop"),
    ):
        status, body = session.text(path, method, base=page)
        assert status >= 400, (method, path, body)
    # The listener of the proxy is no way past the token for other hosts.
    assert urlsplit(session.client.rest_address).port is not None
    assert session.ask(f"/jobs/{session.job}")["state"] == "RUNNING"
