"""A job with a password and a token is killed and goes on: each count is there once, and no secret shows anywhere."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.kafka.counting_job import Words, counting, run_until_fired, source_of
from tests.kafka.secured_connections import SecuredConnections
from tests.kafka.topic_under_test import SECONDS, TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.credentials import CLIENT_SECRET, PASSWORD, SCRAM_PASSWORD, USER
from tests.support.kafka.token_endpoint import TokenEndpoint, token_endpoint
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.client_settings import producer_settings
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.fault_plan import FaultAction, FaultPlan, FileFaultPlanner, configuration_of

pytestmark = [pytest.mark.kafka, pytest.mark.fault]

_OF_CLUSTER = (
    "config",
    "jobmanager/config",
    "jobmanager/environment",
    "jobmanager/log",
    "taskmanagers",
    "overview",
)
_OF_JOB = ("", "/config", "/plan", "/exceptions", "/checkpoints", "/checkpoints/config", "/jobmanager/config")


@pytest.fixture
def tokens(kafka: KafkaCluster) -> Iterator[TokenEndpoint]:
    with token_endpoint(kafka.credentials) as endpoint:
        yield endpoint


def answers(cluster: MiniCluster, job: str) -> Iterator[tuple[str, bytes]]:
    """What the web API tells of the cluster and of a job."""
    for path in (*_OF_CLUSTER, *(f"jobs/{job}{rest}" for rest in _OF_JOB)):
        try:
            with urllib.request.urlopen(f"{cluster.web_address}/{path}", timeout=SECONDS) as answer:
                yield path, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                yield path, error.read()


def processes() -> Iterator[tuple[str, bytes]]:
    """Arguments and environments of the processes that this one has started."""
    for process in psutil.Process().children(recursive=True):
        for name in ("cmdline", "environ"):
            try:
                yield f"{name} of {process.pid}", Path(f"/proc/{process.pid}/{name}").read_bytes()
            except OSError:
                continue  # It has ended.


def files(*folders: Path) -> Iterator[tuple[str, bytes]]:
    """Everything below folders."""
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file():
                yield str(file), file.read_bytes()


def require_hidden(secrets: list[str], *found: Iterator[tuple[str, bytes]]) -> int:
    """Return the number of places that were looked at; none of them may hold a secret."""
    looked = 0
    for places in found:
        for place, content in places:
            looked += 1
            for number, secret in enumerate(secrets):
                assert secret.encode() not in content, f"secret {number} shows in {place}"
    return looked


def test_a_killed_job_commits_under_tls_and_login_and_shows_no_secret(
    kafka: KafkaCluster,
    tokens: TokenEndpoint,
    new_topic: Callable[..., str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections = SecuredConnections(kafka, tokens)
    words = Words(kafka.bootstrap_servers, new_topic(2), 2)
    target = TopicUnderTest(kafka, new_topic(2))
    source = source_of(kafka.bootstrap_servers, words.topic).set_properties(connections.oauth())
    sink = target.sink(properties=connections.scram())
    plan, gates, logs = (
        FaultPlan(0, "sink.before-commit", FaultAction.KILL, 1),
        tmp_path / "gates",
        tmp_path / "logs",
    )
    gates.mkdir()
    words.send(100)
    with mini_cluster(task_executors=2, slots=2, configuration={"env.log.dir": str(logs)}) as cluster:
        planner = FileFaultPlanner(plan, str(gates), lambda: cluster.processes[:1])
        env = counting(cluster, tmp_path, source, configuration_of(plan, str(gates)), sink)
        run = run_until_fired(cluster, env, words, planner)
        run.until_completed()
        secrets = [SCRAM_PASSWORD, CLIENT_SECRET, *tokens.tokens]
        assert tokens.tokens, "the job has asked for tokens"
        job = str(run.client.get_job_id())
        looked = require_hidden(
            secrets, answers(cluster, job), processes(), files(logs, tmp_path / "checkpoints")
        )
        assert looked > len(_OF_CLUSTER) + len(_OF_JOB) + 4
        words.end()
        run.ends()
        secrets = [SCRAM_PASSWORD, CLIENT_SECRET, *tokens.tokens]
        require_hidden(secrets, answers(cluster, job), files(logs, tmp_path / "checkpoints"))
    require_hidden(secrets, iter([("the log", caplog.text.encode())]))
    assert Counter(target.rows()) == words.counts()
    assert target.leftovers() == []


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_the_protocol_library_logs_no_login_even_where_it_logs_all(
    kafka: KafkaCluster, tokens: TokenEndpoint, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    plain = {
        "bootstrap.servers": kafka.secured_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    properties = plain if way == "PLAIN" else SecuredConnections(kafka, tokens).named(way)
    client = TransactionClient(producer_settings("test", properties), ClientProperties(properties), SECONDS)
    with caplog.at_level(logging.DEBUG, "kafka"):
        try:
            assert client.listed("nobody", "Ongoing") == []
        finally:
            client.close()
    assert "ListTransactions" in caplog.text, "the library logs its requests"
    require_hidden(
        [PASSWORD, SCRAM_PASSWORD, CLIENT_SECRET, *tokens.tokens], iter([("the log", caplog.text.encode())])
    )
