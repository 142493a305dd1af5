"""A job whose workers cannot import the engine fails with the cause, instead of starting workers without an end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import DEADLINE

pytestmark = pytest.mark.cluster
#: Python reads it at the start of each process. The client has no need of that module.
BROKEN = """
import sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "yarrow.container.worker.worker":
            raise ImportError("libbroken.so: cannot open shared object file")

sys.meta_path.insert(0, Broken())
"""
JOB = """
import sys
from yarrow.common import Configuration
from yarrow.datastream import StreamExecutionEnvironment

configuration = Configuration.from_dict({"parallelism.default": "1", "taskmanager.worker.start": sys.argv[1]})
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.from_collection([1, 2]).map(lambda n: n).print()
env.execute()
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_job_fails_and_tells_what_could_not_be_imported(tmp_path: Path, start: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    (tmp_path / "job.py").write_text(JOB)
    outcome = subprocess.run(
        [sys.executable, "job.py", start],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert outcome.returncode == 1, outcome.stderr
    assert "EngineNotImportedError" in outcome.stderr
    assert (
        "cannot import the engine: ImportError: libbroken.so: cannot open shared object file"
        in outcome.stderr
    )
