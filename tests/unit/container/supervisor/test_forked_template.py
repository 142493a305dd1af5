"""The first template of a TaskExecutor is a fork of it, and its workers are what those of an executed one are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.container.supervisor.conftest import ROOT

_SAME = ("environment", "large_block", "path", "sigchld", "sigint", "stderr", "stdin", "stdout", "threads")


@pytest.mark.slow
def test_a_forked_template_is_what_an_executed_one_is(tmp_path: Path) -> None:
    for name in ("numpy", "cloudpickle", "uuid"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('a file of the working directory')")
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.container.supervisor.forked_template_program"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    (forked, executed), (pid, status, control) = json.loads(done.stdout)
    assert {name: forked[name] for name in _SAME} == {name: executed[name] for name in _SAME}
    assert len(json.loads(forked["descriptors"])) == 4, "standard streams and its own socket"
    assert forked["parent"] == forked["template"] == str(pid)
    for facts in (forked, executed):
        assert "-m yarrow.container.launch.template" in facts["command"]
    assert (status, control) == (0, -1), "the launcher has reaped its template"
    assert done.stderr.count("ended") == 1, "neither the template nor its worker runs the parent's code"


def test_a_system_that_refuses_a_fork_leaves_the_start_to_the_launcher() -> None:
    script = """
import os
from yarrow.container.launch.forked_template import fork_template
def refuse():
    raise BlockingIOError
os.fork = refuse
before = os.listdir("/proc/self/fd")
assert fork_template("json:loads") is None
assert os.listdir("/proc/self/fd") == before
"""
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
