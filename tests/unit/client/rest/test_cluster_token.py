"""Which addresses learn the token of a standalone cluster, and that old or open files of secrets are refused."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from yarrow.cli.targets import means_cluster
from yarrow.client.errors import CommandError
from yarrow.client.rest.cluster_token import cluster_token, token_for
from yarrow.runtime.config.settings import Settings
from yarrow.standalone.cluster_directory import ClusterDirectory
from yarrow.standalone.leader_announcements import Leader


@pytest.fixture
def config(tmp_path: Path) -> Settings:
    return Settings(
        {
            "security.cluster.directory": str(tmp_path / "cluster"),
            "yarn.properties-file.location": str(tmp_path / "files"),
            "jobmanager.rpc.address": "master.example",
        }
    )


def announce(config: Settings, web_address: str) -> None:
    leader = Leader(
        address="grpc://x:1/rm", leader_id="1", web_address=web_address, pid=os.getpid(), host="here"
    )
    ClusterDirectory.of(config).leaders.announce(leader)


def test_there_is_no_token_without_a_cluster(config: Settings) -> None:
    assert cluster_token(config) == ""
    assert token_for(config, "master.example", 8081) == ""
    assert not means_cluster(config)
    assert ClusterDirectory.find(config) is None, "looking makes nothing"


def test_only_the_clusters_own_addresses_learn_the_token(config: Settings) -> None:
    token = ClusterDirectory.of(config).secrets().rest_token
    assert len(token) >= 43, "256 bits"
    assert cluster_token(config) == token
    # Nobody has announced himself here: the directory was copied from the master's host.
    assert token_for(config, "master.example", 8081) == token
    assert token_for(config, "other.example", 8081) == ""
    announce(config, "https://localhost:4242")
    for host in ("localhost", "master.example"):
        assert token_for(config, host, 4242) == token
        assert token_for(config, host, 4243) == ""
    assert token_for(config, "other.example", 4242) == ""


def test_a_session_of_yarn_comes_first(config: Settings) -> None:
    ClusterDirectory.of(config).secrets()
    assert means_cluster(config)
    named = config.overlay({"yarn.application.id": "application_1_0001"})
    assert not means_cluster(named)


def test_secrets_of_another_version_are_refused_without_being_shown(config: Settings) -> None:
    directory = ClusterDirectory.of(config)
    path = directory.path / "cluster.secret"
    path.touch(0o600)
    path.write_bytes(msgspec.msgpack.encode({"data_secret": b"planted"}))
    with pytest.raises(CommandError, match="not of this version") as refused:
        directory.find_secrets()
    assert "planted" not in str(refused.value)
    path.chmod(0o640)
    with pytest.raises(CommandError, match="may be read by others"):
        directory.find_secrets()
