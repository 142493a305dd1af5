"""Settings of high availability: each that is missing or wrong is named, with what to do."""

from __future__ import annotations

import pytest

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.settings import (
    ZooKeeperSettings,
    cluster_id,
    is_highly_available,
    storage_directory,
    zookeeper_settings,
)

GOOD = {
    "high-availability.type": "zookeeper",
    "high-availability.zookeeper.quorum": "zk1:2181, zk2:2181",
    "high-availability.storageDir": "hdfs:///yarrow/ha",
    "high-availability.cluster-id": "/blue/",
    "high-availability.zookeeper.path.root": "/flink",
    "high-availability.zookeeper.client.session-timeout": "6 s",
    "high-availability.zookeeper.client.connection-timeout": "7 s",
    "high-availability.zookeeper.client.retry-wait": "1 s",
    "high-availability.zookeeper.client.max-retry-attempts": "5",
    "high-availability.zookeeper.client.acl": "creator",
}


def settings(**changes: str | None) -> Settings:
    names = {key.rpartition(".")[2].replace("-", "_"): key for key in GOOD}
    return Settings({**GOOD, **{names[name]: value for name, value in changes.items()}}, "a test")


def test_all_of_it_is_read() -> None:
    config = settings()
    assert is_highly_available(config)
    assert zookeeper_settings(config) == ZooKeeperSettings(
        quorum="zk1:2181, zk2:2181",
        root="/flink/blue",
        session_timeout=6,
        connection_timeout=7,
        retry_wait=1,
        max_retries=5,
        creator_only=True,
    )
    assert storage_directory(config) == "hdfs:///yarrow/ha/blue"
    assert not is_highly_available(Settings({}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quorum": None}, r"needs high-availability\.zookeeper\.quorum"),
        ({"quorum": "zk1:port"}, r"quorum: 'zk1:port' is no server"),
        ({"storageDir": None}, r"needs high-availability\.storageDir"),
        ({"storageDir": "s3://bucket/ha"}, r"storageDir: s3://bucket/ha has no file system here"),
        ({"cluster_id": "/"}, r"cluster-id: '/' is no name"),
        ({"cluster_id": "a/../b"}, r"cluster-id: 'a/../b' is no name"),
        ({"acl": "everybody"}, r"acl: everybody is not known: expected open or creator"),
        ({"session_timeout": "0 s"}, r"session-timeout must be above 0"),
        ({"type": "etcd"}, r"type: etcd is not known: expected NONE or zookeeper"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, str | None], message: str) -> None:
    config = settings(**changes)
    with pytest.raises(YarrowError, match=message):
        is_highly_available(config)
        zookeeper_settings(config)
        storage_directory(config)


def test_an_id_may_have_parts() -> None:
    assert cluster_id(settings(cluster_id="team/blue")) == "team/blue"
