"""Pages out of an archive: members by their exact names, nothing else, and what is shown without an archive."""

from __future__ import annotations

import zipfile
from pathlib import Path

import httpx
import pytest

from tests.unit.am.rest.fakes import FakeCluster, client_of
from tests.unit.am.rest.running import run
from yarrow.am.rest.services import EntranceKind, RestSettings
from yarrow.runtime.config.options import web
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.config.web_pages import chosen_archive, kept_archive
from yarrow.runtime.security.rest_tokens import token_hash

FIRST = b"<!doctype html><title>first</title>"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "pages.jar"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("web/index.html", FIRST)
        made.writestr("web/main.1.js", b"run()")
        made.writestr("web/assets/icon.svg", b"<svg/>")
        made.writestr("web/overview", b"not the path of the API")
        made.writestr("META-INF/LICENSE", b"of others")
        made.writestr("web/../escaped.txt", b"outside")
    (tmp_path / "secret.txt").write_text("not for you")
    return path


def request(cluster: FakeCluster, path: str, settings: RestSettings, method: str = "GET") -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(cluster.app(settings)) as client:
            return await client.request(method, path)

    return run(ask())


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("/", "text/html; charset=utf-8", FIRST),
        ("/index.html", "text/html; charset=utf-8", FIRST),
        ("/v1/", "text/html; charset=utf-8", FIRST),
        ("/main.1.js", "text/javascript; charset=utf-8", b"run()"),
        ("/assets/icon.svg", "image/svg+xml", b"<svg/>"),
    ],
)
def test_pages_are_shown_by_their_names(
    cluster: FakeCluster, archive: Path, path: str, kind: str, content: bytes
) -> None:
    answer = request(cluster, path, RestSettings(pages=archive))
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, kind, content)
    assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/web/index.html",
        "/META-INF/LICENSE",
        "/../META-INF/LICENSE",
        "/assets/",
        "/main.1.js/",
        "//main.1.js",
        "/MAIN.1.JS",
    ],
)
def test_a_path_is_looked_up_and_never_followed(cluster: FakeCluster, archive: Path, path: str) -> None:
    async def ask() -> int:
        """As a client that sends a path as it is; httpx would make it a plain one."""
        app = cluster.app(RestSettings(pages=archive))
        raw = httpx.URL("http://localhost").copy_with(raw_path=path.encode())
        async with client_of(app) as client:
            return (await client.get(raw)).status_code

    assert run(ask()) == 404


def test_a_page_takes_no_path_of_the_api_and_takes_nothing_but_get(
    cluster: FakeCluster, archive: Path
) -> None:
    settings = RestSettings(pages=archive)
    assert request(cluster, "/overview", settings).json()["slots-total"] == 2
    assert request(cluster, "/main.1.js", settings, "POST").status_code == 404
    assert request(cluster, "/main.1.js", settings, "HEAD").status_code == 200
    assert "REST API" in request(cluster, "/docs", settings).text


def test_without_an_archive_the_page_names_the_command_and_the_api(cluster: FakeCluster) -> None:
    answer = request(cluster, "/", RestSettings())
    assert answer.status_code == 200
    assert "yarrow dashboard" in answer.text
    assert 'href="docs"' in answer.text
    assert request(cluster, "/index.html", RestSettings()).status_code == 404


def test_an_archive_that_has_gone_bad_is_as_none(
    cluster: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = tmp_path / "bad.jar"
    bad.write_text("no zip")
    assert "yarrow dashboard" in request(cluster, "/", RestSettings(pages=bad)).text
    assert str(bad) in caplog.text


def test_a_token_is_asked_for_before_a_page_is_shown(cluster: FakeCluster, archive: Path) -> None:
    settings = RestSettings(pages=archive, entrance=EntranceKind.TOKEN, token_hash=token_hash("secret"))
    assert request(cluster, "/", settings).status_code == 401
    assert request(cluster, "/main.1.js", settings).status_code == 401


def test_the_configuration_names_the_archive_or_none(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert chosen_archive(Settings({})) is None
    kept_archive().parent.mkdir(parents=True)
    kept_archive().write_bytes(archive.read_bytes())
    assert chosen_archive(Settings({})) == kept_archive()
    assert chosen_archive(Settings({web.PAGES.key: "none"})) is None
    assert chosen_archive(Settings({web.PAGES.key: str(archive)})) == archive
    assert RestSettings.of(Settings({web.PAGES.key: str(archive)})).pages == archive


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"no zip", "no zip or jar"), ("empty", "there is no web/index.html in it")],
)
def test_what_is_no_archive_is_refused_by_name(tmp_path: Path, content: bytes | str | None, why: str) -> None:
    path = tmp_path / "other.jar"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        zipfile.ZipFile(path, "w").close()
    with pytest.raises(ConfigError, match=why) as refused:
        chosen_archive(Settings({web.PAGES.key: str(path)}))
    assert refused.value.keys == ("web.pages",)
    assert "yarrow dashboard" in str(refused.value)
