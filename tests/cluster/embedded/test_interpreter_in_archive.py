"""`-pyarch venv.zip -pyexec venv.zip/venv/bin/python`: functions run in the interpreter that the job brings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.programs import DEADLINE, run
from tests.packed_interpreters import zipped_environment, zipped_script

pytestmark = pytest.mark.cluster

_PROGRAM = """
import json
from yarrow.datastream import StreamExecutionEnvironment

def where(number):
    import os, sys
    return json.dumps([sys.executable, sys.prefix, os.getcwd()])

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism({parallelism})
env.add_python_archive("venv.zip"{target})
env.set_python_executable("{executable}")
env.get_configuration().set_string("execution.in-process", "{in_process}")
with env.from_collection([1, 2]).map(where).execute_and_collect() as rows:
    print(json.dumps([json.loads(row) for row in rows]))
"""


def program(executable: str, target: str = "", parallelism: int = 1, in_process: str = "false") -> str:
    return _PROGRAM.format(
        executable=executable,
        target=f", {target!r}" if target else "",
        parallelism=parallelism,
        in_process=in_process,
    )


@pytest.mark.parametrize(("target", "folder"), [("", "venv.zip"), ("env", "env")])
def test_workers_run_in_the_interpreter_of_the_archive(tmp_path: Path, target: str, folder: str) -> None:
    zipped_environment(tmp_path)
    outcome = run(tmp_path, program(f"{folder}/venv/bin/python", target, parallelism=2))
    assert outcome.status == 0, outcome.err
    for executable, prefix, working in json.loads(outcome.out):
        assert executable == f"{working}/{folder}/venv/bin/python"
        assert prefix == f"{working}/{folder}/venv"


def test_one_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    zipped_environment(tmp_path, with_engine=False)
    outcome = run(tmp_path, program("venv.zip/venv/bin/python"))
    assert outcome.status == 1
    assert "UnfitInterpreterError" in outcome.err
    for part in (
        "python.executable",
        "'venv.zip/venv/bin/python'",
        "the job's archive 'venv.zip'",
        "No module named",
    ):
        assert part in outcome.err


def test_threads_of_this_process_cannot_run_in_it(tmp_path: Path) -> None:
    zipped_script(tmp_path, "exit 1")
    outcome = run(tmp_path, program("venv.zip/venv/bin/python", in_process="true"))
    assert outcome.status == 1
    assert "execution.in-process" in outcome.err
    assert "venv.zip/venv/bin/python" in outcome.err


_MAIN = """
import sys
print(sys.prefix)
if sys.argv[1:] == ["child"]:
    import subprocess
    subprocess.run(["yarrow", "run", "-py", "main.py"], check=True)
"""


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `yarrow run` with a folder for temporary files of its own, of which nothing is left afterwards."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    (folder / "main.py").write_text(_MAIN)
    programs = Path(sys.executable).parent
    variables = {"TMPDIR": str(temporary), "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(programs / "yarrow"), "run", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert list(temporary.iterdir()) == []
    return done


def test_main_runs_in_the_interpreter_of_the_archive(tmp_path: Path) -> None:
    zipped_environment(tmp_path)
    flags = ("-pyarch", "venv.zip#env", "-pyclientexec", "env/venv/bin/python")
    done = command(tmp_path, *flags, "main.py", "child")
    assert done.returncode == 0, done.stderr
    own, child = done.stdout.splitlines()
    assert re.fullmatch(rf"{tmp_path}/temporary/yarrow-interpreter-[^/]*/env/venv", own)
    assert child == sys.prefix, "a command that the program starts is another"


def test_an_interpreter_of_main_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    zipped_script(tmp_path, "exit 3")
    done = command(tmp_path, "-pyarch", "venv.zip", "-pyclientexec", "venv.zip/venv/bin/python", "main.py")
    assert done.returncode == 1
    assert "python.client.executable" in done.stderr
    assert "'venv.zip/venv/bin/python': it is no Python" in done.stderr
    done = command(tmp_path, "-pyclientexec", "no/such/python", "main.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "'no/such/python': there is no such program" in done.stderr
