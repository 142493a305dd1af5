"""The first template of a TaskExecutor is a fork of it, and its workers are what those of an executed one are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.container.supervisor.conftest import ROOT
from yarrow.runtime.rpc.bootstrap import TASK_EXECUTOR_COMMAND

_SAME = (
    "blocked",
    "environment",
    "flags",
    "large_block",
    "path",
    "sigchld",
    "sigint",
    "stderr",
    "stdin",
    "stdout",
    "threads",
)


@pytest.mark.slow
def test_a_forked_template_is_what_an_executed_one_is(tmp_path: Path) -> None:
    # TaskExecutor, template and worker import all of these.
    for name in ("bisect", "cloudpickle", "numpy", "struct", "uuid"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('a file of the working directory')")
    done = subprocess.run(
        [
            sys.executable,
            *TASK_EXECUTOR_COMMAND[:-1],
            "tests.unit.container.launch.forked_template_program",
        ],
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
        assert "-P -m yarrow.container.launch.template" in facts["command"]
    assert (status, control) == (0, -1), "the launcher has reaped its template"
    assert done.stderr.count("ended") == 1, "neither the template nor its worker runs the parent's code"


def run(script: str) -> str:
    """Runs the script in a process of its own, and returns its output and errors."""
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_system_that_refuses_a_fork_or_its_socket_leaves_the_start_to_the_launcher() -> None:
    run("""
import os, resource
from yarrow.container.launch.forked_template import fork_template
def refuse():
    raise BlockingIOError
os.fork = refuse
before = os.listdir("/proc/self/fd")
assert fork_template("json:loads") is None
assert os.listdir("/proc/self/fd") == before
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
assert fork_template("json:loads") is None
""")


def test_neither_an_interrupt_nor_a_hidden_command_line_keeps_the_child_from_its_work() -> None:
    shown = run("""
import os, signal
from pathlib import Path
from yarrow.container.launch import forked_template, template
fork = os.fork
def interrupted():
    pid = fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGINT)
    return pid
def hidden(path):
    raise PermissionError(path)
os.fork, Path.read_text = interrupted, hidden
template.serve_template = lambda options: 7
try:
    started = forked_template.fork_template("json:loads")
    assert started.process.wait() == 7, started.process.returncode
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
finally:
    print("ended")
""")
    assert shown == "ended\n"


def test_a_child_is_reaped_where_the_system_ignores_the_end_of_children() -> None:
    run("""
import os, signal
from contextlib import suppress
from yarrow.container.launch.forked_template import ForkedProcess
def child(status):
    pid = os.fork()
    while pid == 0:
        signal.pause() if status is None else os._exit(status)
    return ForkedProcess(pid)
def killed():
    process = child(None)
    process.kill()
    return process.wait()
assert [child(3).wait(), killed()] == [3, -signal.SIGKILL]
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
assert [child(3).wait(), child(3).wait(600), killed()] == [0, 0, 0]
ended = child(3)
with suppress(ChildProcessError):
    os.waitpid(ended.pid, 0)
ended.kill()
assert ended.returncode == ended.wait() == 0
""")
