"""Calls behind the first job of a program that may execute another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from yarrow.cli.verification.later_jobs import Call, later_job


class Ended(BaseException):
    """Stands for the end of a program in its first `execute`."""


class Environment:
    def execute(self, name: str = "") -> None:
        raise Ended

    execute_async = execute_and_collect = execute


def later(text: str) -> Call | None:
    code = compile(text, "job.py", "exec")
    try:
        exec(code, {"env": Environment(), "__name__": "__main__"})
    except Ended as ended:
        return later_job(ended.__traceback__)
    raise AssertionError("the program has not executed a job")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("env.execute()\nenv.execute()", 2),
        ("def main():\n  env.execute()\n  env.execute_async()\nmain()", 3),
        ("def one():\n  env.execute()\ndef two():\n  env.execute()\none()\ntwo()", 4),
        (
            "def one():\n  env.execute()\ndef two():\n  three()\ndef three():\n  env.execute()\none()\ntwo()",
            6,
        ),
        ("for day in range(3):\n  env.execute()", 2),
        ("run = env.execute\nenv.execute()\nrun()", 3),
        ("def main(other):\n  env.execute()\n  other.execute()\nmain(env)", 3),
        ("env.execute_async()\nfor row in env.execute_and_collect():\n  print(row)", 2),
    ],
)
def test_another_job_is_named_by_line(text: str, line: int) -> None:
    call = later(text)
    assert call is not None
    assert (call.file, call.line) == ("job.py", line)


@pytest.mark.parametrize(
    "text",
    [
        "env.execute()",
        "import sqlite3\ncursor = sqlite3.connect(':memory:').cursor()\nenv.execute()\ncursor.execute('SELECT 1')",
        "import sqlite3\ndef main(rows):\n  env.execute()\n  rows.execute('SELECT 1')\nmain(sqlite3.connect(''))",
        "def main():\n  env.execute()\nif __name__ == '__main__':\n  main()",
        "def unused():\n  env.execute()\nenv.execute('one')\nprint('done')",
        "try:\n  env.execute()\nfinally:\n  print('done')",
        "for day in range(3):\n  print(day)\nenv.execute()\nfor day in range(3):\n  print(day)",
        "if len('a') > 1:\n  env.execute()\nelse:\n  env.execute()",
    ],
)
def test_programs_of_one_job_have_no_later_one(text: str) -> None:
    assert later(text) is None


def test_functions_of_other_modules_of_the_program_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second_job_of_the_test.py").write_text("def second(env):\n  env.execute()\n")
    monkeypatch.syspath_prepend(tmp_path)
    call = later("from second_job_of_the_test import second\nenv.execute()\nsecond(env)")
    assert call is not None and (Path(call.file).name, call.line) == ("second_job_of_the_test.py", 2)


def test_frames_of_the_engine_do_not_count(tmp_path: Path) -> None:
    from yarrow.cli.errors import ProgramFailedError

    assert later_job(ProgramFailedError("x").__traceback__) is None
