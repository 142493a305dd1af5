"""Uploading, planning and running programs: main runs in a child process, files keep to their folder."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import httpx
import psutil
import pytest

from tests.unit.am.rest.fakes import ENDED_JOB, FakeCluster, client_of
from tests.unit.am.rest.running import run
from yarrow.am.rest.programs import store
from yarrow.am.rest.services import RestSettings
from yarrow.runtime.graph.job_graph import decode_job_graph

#: No page can send it.
CLIENT = {"x-requested-with": "test"}

PROGRAM = """\
import os, sys
from dataclasses import dataclass
from yarrow.datastream import StreamExecutionEnvironment

@dataclass
class Word:
    text: str

def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([Word(text) for text in sys.argv[1:] or ["a"]])
    words.map(lambda word: word.text).print()
    env.execute(f"{os.getpid()} {len(sys.argv)}")
    env.execute_again = True

if __name__ == "__main__":
    main()
    print("this is not the control plane's output")
"""

Answers = Callable[[httpx.AsyncClient], Awaitable[Any]]


def talk(cluster: FakeCluster, answers: Answers, **settings: Any) -> Any:
    """Runs `answers` with a client of one application, and checks that nothing of it is left."""

    async def main() -> Any:
        base = RestSettings.of(cluster.services.settings)
        options = {name: getattr(base, name) for name in base.__dataclass_fields__} | settings
        app = cluster.app(RestSettings(**options))
        try:
            async with client_of(app) as client:
                return await answers(client)
        finally:
            app.state.access.close()
            left = list(base.temporary_directory.iterdir())
            assert not left, f"left behind: {left}"

    return run(main())


async def upload(client: httpx.AsyncClient, content: bytes | str, name: str = "words.py") -> str:
    data = content.encode() if isinstance(content, str) else content
    response = await client.post("/v1/jars/upload", files={"jarfile": (name, data)})
    assert response.status_code == 200, response.text
    assert response.json()["status"] == "success"
    return str(response.json()["filename"]).rpartition("/")[2]


def archive(**modules: str) -> bytes:
    """A zip of modules; double underscores within a name part folders."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, text in modules.items():
            file.writestr(f"{name}.py", text)
    return buffer.getvalue()


def test_program_is_listed_planned_run_and_deleted(cluster: FakeCluster) -> None:
    async def answers(client: httpx.AsyncClient) -> None:
        program = await upload(client, PROGRAM)
        (listed,) = (await client.get("/jars")).json()["files"]
        assert (listed["id"], listed["name"], listed["entry"][0]["name"]) == (program, "words.py", "__main__")

        planned = await client.post(f"/jars/{program}/plan", json={"parallelism": 1})
        assert planned.status_code == 200, planned.text
        plan = planned.json()["plan"]
        assert {node["parallelism"] for node in plan["nodes"]} == {1}
        assert not cluster.dispatcher.submitted

        body = {
            "programArgs": "one 'two words'",
            "jobId": "3" * 32,
            "flinkConfiguration": {"parallelism.default": "1"},
        }
        started = await client.post(f"/jars/{program}/run", json=body)
        assert started.status_code == 200, started.text
        assert started.json()["jobid"] == "3" * 32
        (encoded,) = cluster.dispatcher.submitted
        graph = decode_job_graph(encoded)
        process, arguments = graph.name.split()
        assert int(process) != os.getpid()
        assert not psutil.pid_exists(int(process))
        assert arguments == "3"
        assert b"Word" in graph.user_code.main_definitions

        assert (await client.delete(f"/jars/{program}")).json() == {}
        assert (await client.get("/jars")).json()["files"] == []
        assert (await client.post(f"/jars/{program}/plan")).status_code == 404

    talk(cluster, answers)


def test_parallelism_is_the_clusters_unless_asked_otherwise(cluster: FakeCluster) -> None:
    async def answers(client: httpx.AsyncClient) -> list[int]:
        program = await upload(client, PROGRAM)
        plans = [
            (await client.get(f"/jars/{program}/plan", headers=CLIENT)).json()["plan"],
            (await client.get(f"/jars/{program}/plan?parallelism=5", headers=CLIENT)).json()["plan"],
        ]
        return [max(node["parallelism"] for node in plan["nodes"]) for plan in plans]

    assert talk(cluster, answers) == [2, 5]


def test_archive_is_shipped_with_its_jobs(cluster: FakeCluster) -> None:
    content = archive(__main__="import words\nwords.main()\n", words=PROGRAM)

    async def answers(client: httpx.AsyncClient) -> None:
        program = await upload(client, content, "job.zip")
        (listed,) = (await client.get("/jars")).json()["files"]
        assert [entry["name"] for entry in listed["entry"]] == ["__main__", "words"]
        for body in ({}, {"entryClass": "words:main"}, {"entryClass": "words"}):
            response = await client.post(f"/jars/{program}/run", json=body)
            assert response.status_code == 200, response.text
        for encoded in cluster.dispatcher.submitted:
            (file,) = decode_job_graph(encoded).user_code.files
            assert (file.name, file.kind) == ("job.zip", "python_file")
            assert cluster.dispatcher.blobs[file.blob_key] == content

    talk(cluster, answers)
    assert len(cluster.dispatcher.submitted) == 3


def test_module_with_an_entry_is_shipped_too(cluster: FakeCluster) -> None:
    async def answers(client: httpx.AsyncClient) -> None:
        program = await upload(client, PROGRAM)
        response = await client.post(f"/jars/{program}/run", json={"entryClass": "words:main"})
        assert response.status_code == 200, response.text

    talk(cluster, answers)
    (file,) = decode_job_graph(cluster.dispatcher.submitted[0]).user_code.files
    with zipfile.ZipFile(io.BytesIO(cluster.dispatcher.blobs[file.blob_key])) as shipped:
        assert shipped.read("words.py").decode() == PROGRAM


def test_files_of_the_program_are_shipped(cluster: FakeCluster, tmp_path: Path) -> None:
    package = tmp_path / "helpers"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    (tmp_path / "tool.py").write_text("y = 1\n")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "found.py").write_text("z = 1\n")
    (tmp_path / "table.csv").write_text("1,2\n")
    calls = [f"env.add_python_file({str(tmp_path / name)!r})" for name in ("helpers", "tool.py", "path")]
    calls.append(f"os.chdir({str(tmp_path / 'path')!r})")
    calls.append(f"env.register_cached_file({str(tmp_path / 'table.csv')!r}, 'table')")
    lines = "; ".join(calls)
    program_text = PROGRAM.replace("    words =", f"    {lines}\n    words =")

    async def answers(client: httpx.AsyncClient) -> None:
        program = await upload(client, program_text)
        response = await client.post(f"/jars/{program}/run")
        assert response.status_code == 200, response.text

    talk(cluster, answers)
    *modules, table = decode_job_graph(cluster.dispatcher.submitted[0]).user_code.files
    assert (table.name, table.kind) == ("table", "cached_file")
    assert cluster.dispatcher.blobs[table.blob_key] == b"1,2\n"
    found = []
    for module in modules:
        with zipfile.ZipFile(io.BytesIO(cluster.dispatcher.blobs[module.blob_key])) as shipped:
            found.append({name for name in shipped.namelist() if name.endswith(".py")})
    assert sorted(path.name for path in (tmp_path / "path").iterdir()) == ["found.py"]
    assert found == [{"helpers/__init__.py"}, {"tool.py"}, {"found.py"}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "def f():\n    raise ValueError('no such thing')\nf()",
            ["ValueError: no such thing", "words.py", "line 2"],
        ),
        ("print('on the way')\nimport sys\nsys.exit(3)", ["SystemExit: 3", "on the way"]),
        ("import os\nos.kill(os.getpid(), 9)", ["SIGKILL"]),
        ("print('only this')", ["ended without a job", "only this"]),
        ("this is no Python", ["SyntaxError"]),
    ],
)
@pytest.mark.parametrize("what", ["plan", "run"])
def test_failing_program_is_told_with_its_own_trace(
    cluster: FakeCluster, text: str, expected: list[str], what: str
) -> None:
    async def answers(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(f"/jars/{await upload(client, text)}/{what}")

    response = talk(cluster, answers)
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    for part in expected:
        assert part in error
    assert "runpy" not in error
    assert not cluster.dispatcher.submitted


def test_program_that_fails_late_starts_nothing(cluster: FakeCluster) -> None:
    text = PROGRAM.replace('print("this', 'raise RuntimeError("this')

    async def answers(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(f"/jars/{await upload(client, text)}/run")

    assert "RuntimeError" in talk(cluster, answers).json()["errors"][0]
    assert not cluster.dispatcher.submitted


@pytest.mark.fault
def test_program_that_hangs_is_ended_with_its_children(cluster: FakeCluster, tmp_path: Path) -> None:
    started = tmp_path / "pid"
    started.touch()
    text = (
        "import subprocess, time\n"
        f"child = subprocess.Popen(['sleep', '600'])\nopen({str(started)!r}, 'w').write(str(child.pid))\n"
        "child.wait()\n"
    )

    async def answers(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(f"/jars/{await upload(client, text)}/run")

    # More on a busy machine, on which the program may not have started before.
    for seconds in (2, 8, 60):
        response = talk(cluster, answers, program_timeout=float(seconds))
        assert response.status_code == 422
        assert f"within {seconds} s" in response.json()["errors"][0]
        if started.read_text():
            break
    pid = int(started.read_text())
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(pid).wait(120)
        psutil.Process(pid)


@pytest.mark.fault
def test_program_ends_when_nobody_waits_for_it(cluster: FakeCluster, tmp_path: Path) -> None:
    started = tmp_path / "pid"
    os.mkfifo(started)
    text = f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"

    async def answers(client: httpx.AsyncClient) -> int:
        running = asyncio.create_task(client.post(f"/jars/{await upload(client, text)}/run"))
        pid = int(await asyncio.to_thread(started.read_text))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return pid

    assert not psutil.pid_exists(talk(cluster, answers))


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("../../etc/words.py", "words.py"),
        ("..\\..\\words.py", "words.py"),
        ("a b;c$.py", "a_b_c_.py"),
        (".hidden.py", "hidden.py"),
        ("....py", "program.py"),
        ("x" * 300 + ".py", "x" * 100 + ".py"),
    ],
)
def test_uploads_get_names_of_the_servers_choice(
    cluster: FakeCluster, tmp_path: Path, name: str, stored: str
) -> None:
    async def answers(client: httpx.AsyncClient) -> str:
        response = await client.post("/jars/upload", files={"jarfile": (name, b"x = 1")})
        return str(response.json()["filename"])

    filename = Path(talk(cluster, answers, upload_directory=tmp_path / "uploads"))
    assert filename.parent == tmp_path / "uploads"
    identifier, _, base = filename.name.partition("_")
    assert (len(identifier), base) == (32, stored)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("job.jar", b"PK", ".py"),
        ("job", b"", ".py"),
        ("job.zip", b"no zip", "no zip archive"),
        ("job.zip", archive(), "no Python modules"),
    ],
)
def test_what_is_no_program_is_refused(cluster: FakeCluster, name: str, content: bytes, text: str) -> None:
    async def answers(client: httpx.AsyncClient) -> httpx.Response:
        refused = await client.post("/jars/upload", files={"jarfile": (name, content)})
        assert (await client.get("/jars")).json()["files"] == []
        return refused

    response = talk(cluster, answers)
    assert response.status_code == 400
    assert text in response.json()["errors"][0]


@pytest.mark.parametrize(
    "program", ["..%2f..%2fsecret.txt", "../secret.txt", "%2e%2e", "0" * 32 + "_words.py.part"]
)
def test_no_id_leads_out_of_the_folder_of_programs(
    cluster: FakeCluster, tmp_path: Path, program: str
) -> None:
    async def answers(client: httpx.AsyncClient) -> None:
        await upload(client, PROGRAM)
        for method, path in (("DELETE", ""), ("POST", "/run"), ("POST", "/plan"), ("GET", "/plan")):
            response = await client.request(method, f"/jars/{program}{path}", headers=CLIENT)
            assert response.status_code in (404, 405), response.text

    talk(cluster, answers)
    assert (tmp_path / "secret.txt").exists()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"entryClass": "os; rm"}, "no entry"),
        ({"entryClass": "other:main"}, "single file"),
        ({"parallelism": 0}, "parallelism"),
        ({"jobId": "7"}, "jobId"),
        ({"programArgs": "'open"}, "programArgsList"),
        ({"flinkConfiguration": {"no.such.key": "1"}}, "no.such.key"),
        ({"flinkConfiguration": {"parallelism.default": "many"}}, "parallelism.default"),
        ({"savepointPath": "savepoints/one"}, "is relative"),
        ({"savepointPath": "/s", "claimMode": "LEGACY"}, "nobody would own"),
    ],
)
def test_wrong_requests_are_refused_before_main_runs(
    cluster: FakeCluster, body: dict[str, object], text: str
) -> None:
    async def answers(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(f"/jars/{await upload(client, 'raise SystemExit(1)')}/run", json=body)

    response = talk(cluster, answers)
    assert response.status_code == 400, response.text
    assert text in response.json()["errors"][0]


def test_job_id_in_use_is_a_conflict(cluster: FakeCluster) -> None:
    async def answers(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(f"/jars/{await upload(client, PROGRAM)}/run", json={"jobId": ENDED_JOB})

    assert talk(cluster, answers).status_code == 409


def test_programs_can_be_switched_off(cluster: FakeCluster) -> None:
    async def answers(client: httpx.AsyncClient) -> list[int]:
        files = {"jarfile": ("a.py", b"")}
        return [
            (await client.get("/jars")).status_code,
            (await client.post("/jars/upload", files=files)).status_code,
        ]

    assert talk(cluster, answers, submit_enabled=False) == [403, 403]


def members(count: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("__main__.py", "")
        for number in range(count - 1):
            file.writestr(f"m{number}.py", "")
    return buffer.getvalue()


@pytest.mark.parametrize("comment", [0, 65535])
@pytest.mark.parametrize("zip64", [False, True])
def test_archives_are_bounded_in_members_before_their_directory_is_read(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, zip64: bool, comment: int
) -> None:
    monkeypatch.setattr(store, "MAX_MEMBERS", 5)

    async def answers(client: httpx.AsyncClient) -> list[int]:
        found = []
        for count in (5, 6):
            content = members(count)
            end = content.rindex(b"PK\x05\x06")
            last = content[end:-2] + comment.to_bytes(2, "little") + bytes(comment)
            content = content[:end] + (b"PK\x06\x07" + bytes(16) if zip64 else b"") + last
            answer = await client.post("/jars/upload", files={"jarfile": ("job.zip", content)})
            found.append(answer.status_code)
            assert answer.is_success or "members" in answer.json()["errors"][0]
        return found

    assert talk(cluster, answers) == [400 if zip64 else 200, 400]


def test_what_archives_offer_is_not_read_again_by_each_list(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answers(client: httpx.AsyncClient) -> None:
        await upload(client, archive(__main__="", words=""), "job.zip")

        def read(*_: object) -> NoReturn:
            raise AssertionError("read again")

        monkeypatch.setattr(zipfile, "ZipFile", read)
        for _ in range(2):
            (file,) = (await client.get("/jars")).json()["files"]
            assert [entry["name"] for entry in file["entry"]] == ["__main__", "words"]

    talk(cluster, answers)
