"""A standalone cluster whose REST other hosts reach, by TLS and with a token; and where its secrets are not."""

from __future__ import annotations

import base64
import os
import signal
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.cluster.embedded.test_command_line import _ENDLESS, CommandLine
from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.support.free_ports import free_port
from tests.unit.runtime.security.stores import PASSWORD, Stores
from yarrow.standalone.cluster_directory import ClusterSecrets

pytestmark = pytest.mark.cluster

#: The value of a key whose name says that it is secret, as a user's configuration file has it.
PLANTED = "planted-5d02fe77"
_KEYED = """
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
rows = env.from_collection([1, 2, 3, 4]).key_by(lambda x: x % 2).map(lambda x: 2 * x)
with rows.execute_and_collect("keyed") as found:
    print("sum", sum(found), flush=True)
"""


@pytest.fixture
def yarrow(tmp_path: Path) -> CommandLine:
    conf = tmp_path / "conf"
    conf.mkdir()
    lines = {
        "env.pid.dir": str(tmp_path / "pids"),
        "jobmanager.rpc.port": free_port(),
        "rest.port": free_port(),
        "jobmanager.bind-host": "localhost",
        "taskmanager.bind-host": "localhost",
        "s3.secret-key": PLANTED,
    }
    (conf / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    (tmp_path / "endless.py").write_text(_ENDLESS)
    return CommandLine(tmp_path, conf)


def add(yarrow: CommandLine, values: dict[str, str]) -> None:
    with (yarrow.conf / "config.yaml").open("a") as file:
        file.writelines(f"{key}: {value}\n" for key, value in values.items())


@pytest.fixture
def secured(yarrow: CommandLine, tmp_path: Path) -> Iterator[CommandLine]:
    """REST on every interface, by TLS."""
    values = {"rest.bind-address": "0.0.0.0", "security.ssl.rest.enabled": "true"}
    add(yarrow, {**Stores(tmp_path).settings("rest"), **values})
    started = yarrow("start-cluster")
    try:
        assert started.status == 0, started.err
        assert "JobManager Web Interface: https://" in started.out
        yield yarrow
    finally:
        stopped = yarrow("stop-cluster")
        assert stopped.status == 0, stopped.err


def processes_of(conf: Path) -> list[psutil.Process]:
    """Those that were started with a configuration, workers included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("YARROW_CONF_DIR") == str(conf):
                found.append(process)
        except psutil.Error:
            continue
    return found


def assert_in_no_process(processes: list[psutil.Process], needles: dict[str, bytes]) -> None:
    for process in processes:
        for name in ("environ", "cmdline"):
            try:
                content = Path(f"/proc/{process.pid}/{name}").read_bytes()
            except OSError:
                continue
            for what, needle in needles.items():
                assert needle not in content, f"{what} stands in {name} of {process}"


def test_a_token_and_tls_where_other_hosts_reach_rest(secured: CommandLine, tmp_path: Path) -> None:
    yarrow = secured
    [file] = (tmp_path / "pids").glob("*/cluster.secret")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    secrets = msgspec.msgpack.decode(file.read_bytes(), type=ClusterSecrets)
    assert yarrow("token").out == f"{secrets.rest_token}\n"

    # Commands of this host find the token by themselves.
    detached = yarrow("run", "-d", "endless.py")
    assert detached.status == 0, detached.err
    wait_until(lambda: "endless (RUNNING)" in yarrow("list", "-r").out)

    port = next(
        line for line in (yarrow.conf / "config.yaml").read_text().splitlines() if "rest.port" in line
    )
    address = f"https://127.0.0.1:{port.split()[1]}"
    assert status(address, "/overview", "") == 401
    assert status(address, "/overview", "guessed") == 401
    assert status(address, "/overview", secrets.rest_token) == 200

    # An address that is not the cluster's never learns the token.
    assert "401" in yarrow("list", "-m", f"127.0.0.2:{port.split()[1]}").err

    needles = {
        "the token": secrets.rest_token.encode(),
        "the value of a sensitive key": PLANTED.encode(),
        "a keystore's password": PASSWORD.encode(),
        "a private key": b"PRIVATE KEY",
        "the JobManager's key": secrets.job_manager.private_key.splitlines()[1],
        "the TaskExecutor's key": secrets.task_executor.private_key.splitlines()[1],
        "the data secret in hexadecimal": secrets.data_secret.hex().encode(),
        "the data secret in base64": base64.b64encode(secrets.data_secret).rstrip(b"="),
    }
    processes = processes_of(yarrow.conf)
    # Master, starter and supervisor of the TaskExecutor, template, worker.
    assert len(processes) >= 5
    assert_in_no_process(processes, needles)
    for log in (tmp_path / "pids").glob("*/log/*"):
        content = log.read_bytes()
        for what, needle in needles.items():
            assert needle not in content, f"{what} stands in {log}"
    shown = answer(address, "/jobmanager/config", secrets.rest_token)
    assert b"s3.secret-key" in shown and PLANTED.encode() not in shown and PASSWORD.encode() not in shown


def status(address: str, path: str, token: str) -> int:
    try:
        answer(address, path, token)
    except urllib.error.HTTPError as error:
        assert token not in error.read().decode() or not token
        return error.code
    return 200


def answer(address: str, path: str, token: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(
        f"{address}{path}", headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    with urllib.request.urlopen(request, timeout=30, context=context) as response:
        return bytes(response.read())


def test_secrets_of_an_embedded_cluster_are_in_no_process(yarrow: CommandLine) -> None:
    environment = {**os.environ, "YARROW_CONF_DIR": str(yarrow.conf)}
    program = subprocess.Popen(
        [sys.executable, "-m", "yarrow.cli.main", "run", "-t", "local", "-p", "1", "endless.py"],
        cwd=yarrow.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        # Client with control plane, supervisor, template, worker.
        wait_until(lambda: len(processes_of(yarrow.conf)) >= 4)
        needles = {"the value of a sensitive key": PLANTED.encode(), "a private key": b"PRIVATE KEY"}
        assert_in_no_process(processes_of(yarrow.conf), needles)
    finally:
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=DEADLINE)
    assert PLANTED.encode() not in out + err


def test_a_cluster_with_certificates_of_the_users_own_runs_jobs(yarrow: CommandLine, tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    pinned = {"security.ssl.internal.cert.fingerprint": stores.fingerprint}
    add(
        yarrow,
        {
            **stores.settings("internal"),
            **pinned,
            "taskmanager.data.transport": "tcp",
            "taskmanager.numberOfTaskSlots": "2",
        },
    )
    (yarrow.folder / "keyed.py").write_text(_KEYED)
    try:
        started = yarrow("start-cluster")
        assert started.status == 0, started.err
        # A loopback address asks for no token.
        assert "http://localhost:" in started.out
        ran = yarrow("run", "-p", "2", "keyed.py")
        assert ran.status == 0, ran.err
        assert "sum 20" in ran.out
    finally:
        assert yarrow("stop-cluster").status == 0
    absent = f"security.ssl.internal.truststore={tmp_path / 'absent'}"
    for command in ("jobmanager", "taskmanager"):
        outcome = yarrow(command, "-D", absent)
        assert outcome.status == 1
        assert "security.ssl.internal.truststore: cannot read" in outcome.err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"security.ssl.rest.keystore-password": "pw-wrong"}, "security.ssl.rest.keystore-password"),
        ({"security.ssl.rest.keystore": "/nowhere/store.p12"}, "security.ssl.rest.keystore: cannot read"),
        (
            {"security.ssl.internal.keystore": "/nowhere/store.p12"},
            "security.ssl.internal.truststore is not set",
        ),
    ],
)
def test_a_keystore_that_will_not_do_is_named_before_anything_starts(
    changed: dict[str, str], message: str, yarrow: CommandLine, tmp_path: Path
) -> None:
    values = {**Stores(tmp_path).settings("rest"), "security.ssl.rest.enabled": "true", **changed}
    add(yarrow, values)
    outcome = yarrow("jobmanager")
    assert outcome.status == 1
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert PASSWORD not in outcome.err and "pw-wrong" not in outcome.err
    assert not list((tmp_path / "pids").glob("*/cluster.secret"))
