"""Spark's own pages below a job: which paths are passed on, under which rules, and what comes back."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import pytest
from httpx import AsyncClient

from tests.unit.am.rest.fakes import JOB, FakeCluster
from tests.unit.am.rest.test_checkpoint_paths import run
from yarrow.am.rest.errors import BadRequestError, NotFoundError
from yarrow.am.rest.services import EntranceKind, RestSettings
from yarrow.am.rest.spark_paths import PAGE_POLICY, redirected, spark_path, spark_query
from yarrow.runtime.rpc.messages import SparkPage, SparkPageRequest
from yarrow.runtime.security.rest_tokens import token_hash

BASE = f"/jobs/{JOB}/spark"


@pytest.mark.parametrize(
    "page",
    [
        "",
        "jobs/",
        "jobs/job/",
        "stages/stage/",
        "SQL/execution/",
        "storage/rdd/",
        "environment",
        "static/bootstrap.min.css",
        "api/v1/applications/application_17_0001/1/allexecutors",
        "api/v1/applications/local-17/stages/0/0/taskTable",
    ],
)
def test_pages_of_spark_are_passed_on(page: str) -> None:
    assert spark_path(page) == f"/{page}"


@pytest.mark.parametrize(
    "page",
    [
        "jobs/job/kill/",
        "stages/stage/kill",
        "executors/threadDump/",
        "executors/heapHistogram/",
        "api/v1/applications/local-17/executors/driver/threads",
        "api/v1/applications/local-17/logs",
        "api/v1/submissions/kill/1",
        "api",
        "metrics/json",
        "conf",
        "proxy/",
        "static/../../etc/passwd",
        "static/..",
        "static/./x",
        "static/.hidden",
        "static//x",
        "/etc/passwd",
        "static/%2e%2e/x",
        "static\\..\\x",
        "jobs/\r\nHost: x",
        "jobs/ x",
        "@elsewhere/",
        "jobs/" + "x" * 2000,
    ],
)
def test_other_paths_are_refused(page: str) -> None:
    with pytest.raises(NotFoundError):
        spark_path(page)


def test_a_query_is_passed_on_as_it_is() -> None:
    asked = "id=0&completedJob.sort=Job+Id&name=%C3%A4"
    assert spark_query(asked) == asked
    for wrong in ("a b", "a\r\nX: y", "ä", "x" * 10_000):
        with pytest.raises(BadRequestError):
            spark_query(wrong)


def test_a_redirection_stays_below_the_job() -> None:
    for location in (
        "http://127.0.0.1:4040/jobs/",
        "/jobs/",
        f"http://elsewhere{BASE}/jobs/",
        "//elsewhere/jobs/",
    ):
        for asked in ("", "/", "/stages", "/stages/stage/", "/static/a/b"):
            # As whoever follows it resolves it, with and without what stands before the server.
            for before in ("http://host", "http://manager/proxy/application_1_0001/pages/yarrow"):
                found = urljoin(f"{before}{BASE}{asked}", redirected(location, BASE, asked))
                assert found == f"{before}{BASE}/jobs/"
    assert redirected("http://elsewhere/jobs/job?id=1", BASE, "/") == "./jobs/job?id=1"
    assert redirected("https://elsewhere", BASE, "/") == "./"
    assert redirected("https://elsewhere", BASE, "") == "./spark/"
    assert redirected("/jobs/?name=\u0416%C3%A4", BASE, "/stages/stage/") == "../../jobs/?name=%D0%96%C3%A4"


def test_a_page_comes_from_the_jobs_driver_under_both_policies(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        cluster.dispatcher.spark_page = SparkPage(
            status=200, media_type="text/html;charset=utf-8", body=b"<p>jobs", policy="default-src *"
        )
        for prefix in ("", "/v1"):
            answer = await client.get(f"{prefix}{BASE}/jobs/?id=0&x=%C3%A4")
            assert (answer.status_code, answer.text) == (200, "<p>jobs")
            assert answer.headers["content-type"] == "text/html;charset=utf-8"
            policies = answer.headers["content-security-policy"].split(", ")
            assert policies == [PAGE_POLICY, "default-src *"], "the driver's policy loosens nothing"
            assert answer.headers["cache-control"] == "no-store"
        asked = SparkPageRequest(path="/jobs/", query="id=0&x=%C3%A4", base=BASE)
        assert cluster.dispatcher.asked_pages == [asked, asked]
        cluster.dispatcher.spark_page = SparkPage(
            status=302, media_type="", body=b"", location="http://127.0.0.1:4040/jobs/"
        )
        answer = await client.get(f"{BASE}")
        assert (answer.status_code, answer.headers["location"]) == (302, "./spark/jobs/")
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]

    run(tmp_path, body)


def test_pages_are_read_only_and_of_known_jobs(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert (await client.request(method, f"{BASE}/jobs/")).status_code == 405
        assert (await client.get(f"{BASE}/jobs/job/kill/?id=0")).status_code == 404
        assert (await client.get(f"/jobs/{'f' * 32}/spark/jobs/")).status_code == 404
        assert (await client.get("/jobs/..%2f..%2fetc/spark/jobs/")).status_code in (400, 404)
        assert cluster.dispatcher.asked_pages == []

    run(tmp_path, body)


def test_pages_need_the_token_where_rest_does(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        assert (await client.get(f"{BASE}/jobs/")).status_code == 401
        wrong = {"authorization": "Bearer another"}
        assert (await client.get(f"{BASE}/jobs/", headers=wrong)).status_code == 401
        assert cluster.dispatcher.asked_pages == []
        right = {"authorization": "Bearer t0ken"}
        assert (await client.get(f"{BASE}/jobs/", headers=right)).status_code == 200

    run(tmp_path, body, RestSettings(entrance=EntranceKind.TOKEN, token_hash=token_hash("t0ken")))


def test_links_lead_through_what_stands_before_the_server(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        assert (await client.get(f"{BASE}/jobs/")).status_code == 200
        assert cluster.dispatcher.asked_pages[0].base == f"/proxy/application_1_0001/pages/yarrow{BASE}"

    run(
        tmp_path,
        body,
        RestSettings(entrance=EntranceKind.PROXY, external_base="/proxy/application_1_0001/pages/yarrow"),
    )
