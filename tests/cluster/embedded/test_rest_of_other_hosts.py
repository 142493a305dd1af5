"""REST of an embedded cluster that listens on more than loopback: it asks for the token that lies in its folder."""

from __future__ import annotations

import http.client
import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from yarrow.embedded.local_cluster import TOKEN_FILE
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster
ON_ALL = {"rest.bind-address": "0.0.0.0", "rest.bind-port": "0"}


def token_file(folder: Path) -> Path | None:
    """The file in the folder of the one cluster whose temporary files lie there."""
    return next(folder.glob(f"*/{TOKEN_FILE}"), None)


def status_of(cluster: MiniCluster, token: str = "") -> int:
    port = urlsplit(cluster.web_address or "").port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/config", headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    configuration = {**ON_ALL, "io.tmp.dirs": str(tmp_path)}
    with mini_cluster(processes=False, configuration=configuration) as cluster:
        path = token_file(tmp_path)
        assert path is not None
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert status_of(cluster) == status_of(cluster, "guessed") == 401
        assert status_of(cluster, path.read_text()) == 200


def test_without_authentication_in_words_and_on_loopback_none_is(tmp_path: Path) -> None:
    none = {**ON_ALL, "security.rest.authentication": "none"}
    for configuration in (none, {"rest.bind-port": "0"}):
        with mini_cluster(
            processes=False, configuration={**configuration, "io.tmp.dirs": str(tmp_path)}
        ) as cluster:
            assert status_of(cluster) == 200
            assert token_file(tmp_path) is None
