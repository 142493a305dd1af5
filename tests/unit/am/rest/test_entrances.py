"""The three entrances: what each lets in, and what a client that is turned away is told."""

from __future__ import annotations

import re

import pytest

from tests.unit.am.rest.fakes import JOB, FakeCluster
from tests.unit.am.rest.test_protection import ACTIONS, ask
from yarrow.am.rest.entrances import TokenEntrance
from yarrow.am.rest.services import EntranceKind, RestSettings
from yarrow.runtime.security.rest_tokens import token_hash

TOKEN = "f00d" * 16
WITH_TOKEN = RestSettings(entrance=EntranceKind.TOKEN, token_hash=token_hash(TOKEN))
BY_PROXY = RestSettings(entrance=EntranceKind.PROXY)
BY_PROXY_WITH_CANCEL = RestSettings(entrance=EntranceKind.PROXY, cancel_by_get=True)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN}0"},
        {"authorization": "Bearer \u00fc".encode()},
    ],
)
@pytest.mark.parametrize("path", ["/overview", "/config", "/docs", "/nothing"])
def test_no_path_without_the_token(cluster: FakeCluster, path: str, headers: dict[str, str]) -> None:
    answer = ask(cluster, "GET", path, WITH_TOKEN, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "yarrow token" in answer.json()["errors"][0]
    assert TOKEN not in answer.text


def test_two_tokens_are_none(cluster: FakeCluster) -> None:
    headers = [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer x")]
    assert ask(cluster, "GET", "/overview", WITH_TOKEN, headers=headers).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_token_opens_everything_under_any_name(cluster: FakeCluster, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {TOKEN}", "host": "node7.example:41234"}
    assert ask(cluster, "GET", "/overview", WITH_TOKEN, headers=headers).status_code == 200
    assert ask(cluster, "PATCH", f"/jobs/{JOB}", WITH_TOKEN, headers=headers).status_code == 202


def test_a_server_without_a_hash_does_not_start() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        TokenEntrance(b"")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *ACTIONS,
        ("PUT", "/jobs/x/resource-requirements"),
        ("GET", "/jars/none/plan%0A"),
        ("GET", f"/jobs/{JOB}/yarn-cancel%0A"),
    ],
)
def test_nothing_changes_through_the_proxy(cluster: FakeCluster, method: str, path: str) -> None:
    answer = ask(cluster, method, path, BY_PROXY)
    assert answer.status_code == 403
    assert "YARN's proxy" in answer.json()["errors"][0]
    assert not cluster.dispatcher.cancelled
    assert not cluster.dispatcher.shut_down


def test_views_come_through_the_proxy_under_any_name(cluster: FakeCluster) -> None:
    headers = {"host": "rm.example:8088", "origin": "http://rm.example:8088"}
    assert ask(cluster, "GET", "/jobs/overview", BY_PROXY, headers=headers).status_code == 200


def test_no_other_page_reads_through_the_proxy(cluster: FakeCluster) -> None:
    answer = ask(cluster, "GET", "/overview", BY_PROXY, headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_links_of_pages_stay_below_the_prefix_of_the_proxy(cluster: FakeCluster, path: str) -> None:
    text = ask(cluster, "GET", path, BY_PROXY).text
    assert not re.search(r"""(href|src|fetch\()\s*=?\s*["']/""", text)


def test_cancelling_through_the_proxy_can_be_allowed(cluster: FakeCluster) -> None:
    assert ask(cluster, "GET", f"/jobs/{JOB}/yarn-cancel", BY_PROXY_WITH_CANCEL).status_code == 202
    assert cluster.dispatcher.cancelled
    assert ask(cluster, "PATCH", f"/jobs/{JOB}", BY_PROXY_WITH_CANCEL).status_code == 403
    assert ask(cluster, "POST", f"/jobs/{JOB}/yarn-cancel", BY_PROXY_WITH_CANCEL).status_code == 403


def test_the_hash_does_not_show() -> None:
    assert "token_hash" not in repr(WITH_TOKEN)
