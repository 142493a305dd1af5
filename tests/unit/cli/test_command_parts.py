"""Parts of the command line that need no cluster: addresses, lines, uploads, the private directory, programs."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from yarrow.cli.cluster_commands import count_task_executors
from yarrow.cli.errors import ProgramFailedError, failure_text
from yarrow.cli.job_commands import attempt_text, job_line
from yarrow.cli.program import Program, run_program
from yarrow.cli.shell import banner
from yarrow.cli.targets import with_target
from yarrow.client.errors import CommandError
from yarrow.client.rest.masters import rest_address, split_address
from yarrow.client.rest.remote_job_client import decoded_value
from yarrow.client.rest.rest_client import multipart
from yarrow.runtime.common.errors import JobExecutionError
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.standalone.cluster_directory import ClusterDirectory, Daemon, start_ticks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:8081", ("localhost", "8081")),
        ("http://host:80/", ("host", "80")),
        ("[::1]:8081", ("::1", "8081")),
    ],
)
def test_addresses(text: str, expected: tuple[str, str]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", ":8081", "host:0", "host:70000", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="expected host:port"):
        split_address(text)


def test_m_means_a_remote_cluster_and_t_goes_before_it() -> None:
    config = with_target(Settings(), None, "there:99")
    assert config.get(execution.TARGET) == "remote"
    assert rest_address(config) == ("there", 99)
    assert with_target(Settings(), "local", "there:99").get(execution.TARGET) == "local"


def test_the_address_of_a_cluster_is_the_job_managers_unless_rest_has_one() -> None:
    assert rest_address(Settings({"jobmanager.rpc.address": "master"})) == ("master", 8081)
    assert rest_address(Settings({"jobmanager.rpc.address": "master", "rest.address": "web"})) == (
        "web",
        8081,
    )


def test_a_job_in_a_list() -> None:
    start = datetime.datetime(2026, 1, 31, 23, 5, 9)
    job = {"jid": "0f" * 16, "name": "words", "state": "RUNNING", "start-time": int(start.timestamp() * 1000)}
    line = f"31.01.2026 23:05:09 : {'0f' * 16} : words (RUNNING)"
    assert job_line(job) == line
    assert job_line({**job, "waiting-for": "needs 2 slots"}) == f"{line}\n    needs 2 slots"


def test_a_multipart_body() -> None:
    body = multipart("BOUND", b'{"a": 1}', {"graph": b"\x00\xff"})
    assert body.split(b"\r\n") == [
        b"--BOUND",
        b'Content-Disposition: form-data; name="request"',
        b"Content-Type: application/json",
        b"",
        b'{"a": 1}',
        b"--BOUND",
        b'Content-Disposition: form-data; name="file_0"; filename="graph"',
        b"Content-Type: application/octet-stream",
        b"",
        b"\x00\xff",
        b"--BOUND--",
        b"",
    ]


@pytest.mark.parametrize(("value", "expected"), [("5", 5), ("[1, 2]", [1, 2]), ("text", "text"), (7, 7)])
def test_values_of_accumulators(value: object, expected: object) -> None:
    assert decoded_value(value) == expected


def test_workers_of_this_machine_are_counted(tmp_path: Path) -> None:
    assert count_task_executors(None) == 1
    assert count_task_executors(tmp_path) == 1
    (tmp_path / "workers").write_text("# two\nlocalhost\n\n127.0.0.1  # again\n")
    assert count_task_executors(tmp_path) == 2
    (tmp_path / "workers").write_text("elsewhere.example\n")
    with pytest.raises(CommandError, match=r"elsewhere\.example"):
        count_task_executors(tmp_path)


# The private directory


def test_secrets_are_made_once_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "cluster")
    assert directory.find_secrets() is None
    made = directory.secrets()
    assert directory.secrets() == made == ClusterDirectory(tmp_path / "cluster").find_secrets()
    assert len(made.data_secret) == 32
    assert made.task_executor.ca_certificate == made.job_manager.ca_certificate
    assert (tmp_path / "cluster").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "cluster" / "cluster.secret").stat().st_mode & 0o777 == 0o600


def test_an_open_directory_or_secret_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    ClusterDirectory(folder).secrets()
    (folder / "cluster.secret").chmod(0o644)
    with pytest.raises(CommandError, match="0600"):
        ClusterDirectory(folder).find_secrets()
    folder.chmod(0o755)
    with pytest.raises(CommandError, match="mode 0700"):
        ClusterDirectory(folder)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(CommandError, match="mode 0700"):
        ClusterDirectory(link)


def test_only_the_very_process_that_was_started_counts_as_running(tmp_path: Path) -> None:
    own = start_ticks(os.getpid())
    assert own is not None
    running, other = Daemon("a", os.getpid(), own), Daemon("b", os.getpid(), own + 1)
    directory = ClusterDirectory(tmp_path / "cluster")
    directory.remember([running, other])
    assert directory.daemons() == [running]


# Programs


@pytest.fixture
def interpreter() -> Iterator[None]:
    """Programs take over what the interpreter begins with; it is given back."""
    argv, path, main, modules = sys.argv, list(sys.path), sys.modules["__main__"], set(sys.modules)
    yield
    sys.argv, sys.path[:] = argv, path
    sys.modules["__main__"] = main
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.usefixtures("interpreter")
def test_a_script_is_main_with_its_own_arguments_and_path(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 4\n")
    script = tmp_path / "job.py"
    script.write_text(
        "import sys, beside\n"
        "class Box: pass\n"
        "found = (__name__, Box.__module__, sys.modules['__main__'].Box is Box, sys.argv[1:], beside.VALUE)\n"
    )
    run_program(Program(str(script), arguments=("a", "-b")))
    main = sys.modules["__main__"]
    assert main.__dict__["found"] == ("__main__", "__main__", True, ["a", "-b"], 4)
    assert main.__file__ == str(script)
    assert sys.path[0] == str(tmp_path)


@pytest.mark.usefixtures("interpreter")
def test_a_script_is_compiled_as_it_stands(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("class Box:\n    size: int\nfound = Box.__annotations__\n")
    run_program(Program(str(script)))
    assert sys.modules["__main__"].__dict__["found"] == {"size": int}


@pytest.mark.usefixtures("interpreter")
def test_a_package_runs_its_main(tmp_path: Path) -> None:
    package = tmp_path / "thing"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("VALUE = 9\n")
    (package / "__main__.py").write_text("from thing.part import VALUE\nfrom . import part\n")
    run_program(Program(module="thing", python_files=(str(package),)))
    assert sys.modules["__main__"].__dict__["VALUE"] == 9


@pytest.mark.usefixtures("interpreter")
def test_a_program_that_raises_shows_its_own_frames(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("def inner():\n    raise ValueError('bad')\ninner()\n")
    with pytest.raises(ProgramFailedError) as raised:
        run_program(Program(str(script)))
    assert failure_text(raised.value).splitlines()[:2] == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 3, in <module>',
    ]


def test_a_jobs_failure_is_shown_as_it_came() -> None:
    try:
        raise ProgramFailedError("x") from JobExecutionError("Traceback of the user\nValueError")
    except ProgramFailedError as error:
        assert failure_text(error) == "Traceback of the user\nValueError"


@pytest.mark.parametrize("program", [Program(), Program("/no/such/file.py")])
def test_nothing_to_run_is_refused(program: Program) -> None:
    with pytest.raises(CommandError):
        run_program(program)


def test_the_last_attempt_of_an_application_says_so() -> None:
    assert attempt_text({}) == attempt_text({"yarn-attempt": 0, "yarn-max-attempts": 0}) == ""
    assert attempt_text({"yarn-attempt": 1, "yarn-max-attempts": 2}) == "Attempt 1 of 2 of the application."
    assert "the last" in attempt_text({"yarn-attempt": 2, "yarn-max-attempts": 2})


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (None, "an embedded cluster, one for each job"),
        ("remote", "the cluster at host:8082"),
        ("yarn-per-job", "YARN (execution.target: yarn-per-job)"),
    ],
)
def test_the_shell_says_where_jobs_run(target: str | None, told: str) -> None:
    config = Settings({"execution.target": target, "rest.address": "host", "rest.port": "8082"})
    assert f"is a StreamExecutionEnvironment on {told}." in banner(config)
