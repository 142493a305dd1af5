"""One session on a real YARN whose REST speaks TLS, as several kinds of clients see it: commands, a relay, YARN's
proxy, one that is killed, one without a Hadoop configuration.
"""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import user
from tests.unit.runtime.security.stores import Stores
from tests.yarn.commands import Commands, commands_in, end, read_until
from tests.yarn.rest import ask, client_secrets
from yarrow.client.yarn.abandoned_files import remove_abandoned
from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for


@pytest.fixture
def yarrow(hadoop: HadoopCluster, hadoop_environment: None, tmp_path: Path) -> Iterator[Commands]:
    (tmp_path / "stores").mkdir()
    tls = {
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.authentication-enabled": "true",
        **Stores(tmp_path / "stores").settings("rest"),
        "taskmanager.numberOfTaskSlots": "2",
        "client.heartbeat.interval": "500 ms",
        "client.heartbeat.timeout": "15 s",
        "yarn.proxy.allow-cancel": "true",
    }
    with commands_in(hadoop, tmp_path, tls) as commands:
        yield commands


def answer(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=120) as found:
        return json.loads(found.read())


def test_a_session_whose_rest_speaks_tls_serves_all_kinds_of_clients(
    hadoop: HadoopCluster, yarrow: Commands
) -> None:
    session = yarrow.ok("session", "-d", "-nm", yarrow.name("clients"))
    application = session.application
    assert "JobManager Web Interface: https://" in session.out
    job = yarrow.ok("run", "-d", "endless.py").job
    yarrow.eventually(lambda: f"{job} : endless (RUNNING)" in yarrow.ok("list").out, "the job runs")

    relay = yarrow.begin("proxy", application)
    address = re.findall(r"http://[\d.]+:\d+", read_until(relay, "http://"))[-1]
    assert [found["jid"] for found in answer(f"{address}/jobs/overview")["jobs"]] == [job]
    assert end(relay, signal.SIGINT) in (0, 130)
    page = f"{hadoop.resource_manager_web}/proxy/{application}/pages/yarrow"
    assert [found["jid"] for found in answer(f"{page}/jobs/overview")["jobs"]] == [job]

    # Neither the master's node nor a TaskExecutor's is where a client looks for files.
    for refused in (yarrow("savepoint", job, "/mnt/kept"), yarrow("stop", "-p", "file:///mnt/kept", job)):
        assert refused.status == 1
        assert "on YARN every node has another /mnt/kept" in refused.err
        assert "hdfs://host:port/mnt/kept" in refused.err
    assert f"{job} : endless (RUNNING)" in yarrow.ok("list").out

    bound = yarrow.begin("run", "-sae", "endless.py")
    found = re.search(r"JobID ([0-9a-f]{32})", read_until(bound, "has been submitted"))
    assert found is not None
    end(bound, signal.SIGKILL)
    yarrow.eventually(
        lambda: f"{found[1]} : endless (CANCELED)" in yarrow.ok("list", "-a").out, "its job goes with it"
    )
    assert f"{job} : endless (RUNNING)" in yarrow.ok("list").out
    what_yarns_proxy_may_do(yarrow, application, page, job)

    nowhere = {"HADOOP_CONF_DIR": "", "YARN_CONF_DIR": "", "JAVA_HOME": "/nowhere", "PATH": "/bin"}
    ended = yarrow.ok("session", "-id", application, text="stop\n", **nowhere)
    assert f"{application} has ended." in ended.out
    assert yarrow.final_status(application) == "SUCCEEDED"
    assert yarrow.files == []
    what_a_lost_master_leaves_is_named_and_removed(hadoop, yarrow, application)


def what_yarns_proxy_may_do(yarrow: Commands, application: str, page: str, job: str) -> None:
    """It passes no token on, so that with one no more is done than without; cancelling by GET was allowed."""
    token = client_secrets(yarrow.folder / "files", application).rest_token
    for method, path in (("PATCH", f"/jobs/{job}"), ("PUT", f"/jobs/{job}/resource-requirements"),
                         ("DELETE", "/cluster"), ("GET", f"/jobs/{job}/collect/{'0' * 32}")):  # fmt: skip
        with pytest.raises(urllib.error.HTTPError):
            ask(page, token, path, method)
    assert f"{job} : endless (RUNNING)" in yarrow.ok("list").out
    answer(f"{page}/jobs/{job}/yarn-cancel")
    yarrow.eventually(lambda: f"{job} : endless (CANCELED)" in yarrow.ok("list", "-a").out, "it is cancelled")


def what_a_lost_master_leaves_is_named_and_removed(
    hadoop: HadoopCluster, yarrow: Commands, application: str
) -> None:
    folder = f"{hadoop.hdfs_url}/user/{user()}/.skein/{application}"
    files = file_system_for(folder)
    # This master was not lost: it removes its own folder once YARN knows its end.
    yarrow.eventually(lambda: not exists(files, folder), "Skein has removed its folder")
    with files.create(f"{folder}/skein.proto") as output:
        output.write(b"as Skein's ApplicationMaster leaves it when it is killed")
    assert f"{folder}. The next deployment of this user removes them" in yarrow.ok("doctor").out
    with YarnClusterDescriptor(Settings()) as next_one:
        remove_abandoned(next_one.client((b"", b"")))
    assert not exists(files, folder)
    assert folder not in yarrow.ok("doctor").out
