"""`yarrow verify` refuses what it cannot compare: one sentence, exit status 2, before any job starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HEAD = """
from yarrow.datastream import StreamExecutionEnvironment, SourceFunction
env = StreamExecutionEnvironment.get_execution_environment()
"""
_PRINTED = _HEAD + "env.from_collection([1]).print()\n"


class _Case:
    ENDLESS = (
        _HEAD
        + """
class Endless(SourceFunction):
    def run(self, context): pass
    def cancel(self): pass
env.add_source(Endless(), "ticker").print()
env.execute()
"""
    )
    TWO_JOBS = _PRINTED + "env.execute('one')\nenv.from_collection([2]).print()\nenv.execute('two')\n"
    DATA_SETS = (
        "from yarrow.batch.dataset import ExecutionEnvironment\n"
        "env = ExecutionEnvironment.get_execution_environment()\n"
        "env.from_elements(1, 2).map(lambda n: n).print()\n"
    )
    NO_SINK = _HEAD + "env.from_collection([1]).map(lambda n: n)\nenv.execute('no sink')\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        (_Case.ENDLESS, [], "it is a source that does not end by itself; read with from_source"),
        (_PRINTED, [], "the program executes no job"),
        (_Case.TWO_JOBS, [], "job.py, line 7, calls execute behind the job 'one'."),
        (
            _Case.DATA_SETS,
            [],
            "the job 'DataSet Job' is one of a DataSet program. It means nothing as a stream, so verify has no second"
            " mode to compare.",
        ),
        (_Case.NO_SINK, [], "the job 'no sink' has no sink"),
        (_PRINTED + "env.execute()\n", ["-Dexecution.target=remote"], "execution.target is remote"),
        (_PRINTED + "raise LookupError('gone')\n", [], "LookupError: gone"),
        (
            _Case.ENDLESS.replace("env.execute()", "env.execute()\nenv.execute()"),
            ["--first-job"],
            "it is a source that does not end",
        ),
        (_PRINTED, ["-p", "x"], "`yarrow verify -h` shows its flags and arguments."),
    ],
)
def test_what_cannot_be_compared_is_told_with_status_2(
    tmp_path: Path, program: str, arguments: list[str], said: str
) -> None:
    (tmp_path / "job.py").write_text(program)
    inherited = {key: value for key, value in os.environ.items() if not key.endswith("_CONF_DIR")}
    done = subprocess.run(
        [sys.executable, "-m", "yarrow.cli.main", "verify", *arguments, "job.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**inherited, "TMPDIR": str(tmp_path)},
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in " ".join(done.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["job.py"]
