"""`-pyarch venv.zip -pyexec venv.zip/venv/bin/python`: functions run in the interpreter that the job brings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.embedded.programs import run
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
        "the archive 'venv.zip'",
        "No module named",
    ):
        assert part in outcome.err


def test_threads_of_this_process_cannot_run_in_it(tmp_path: Path) -> None:
    zipped_script(tmp_path, "exit 1")
    outcome = run(tmp_path, program("venv.zip/venv/bin/python", in_process="true"))
    assert outcome.status == 1
    assert "execution.in-process" in outcome.err
    assert "venv.zip/venv/bin/python" in outcome.err
