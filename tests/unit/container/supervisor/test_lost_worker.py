"""A worker's death is reported as the operator's whose code it was in."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.container.supervisor.conftest import ROOT
from yarrow.container.launch.worker_launcher import WorkerExit
from yarrow.container.protocol.worker_protocol import CurrentUserCall
from yarrow.container.supervisor.lost_worker import lost_worker_cause
from yarrow.container.supervisor.slot_table import SubtaskName
from yarrow.container.worker.current_call import FILE_NAME, CurrentCallWriter, read_current_call
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID, OperatorID

ATTEMPT = ExecutionAttemptID("g_v_1_0")
TASKS = {ATTEMPT: SubtaskName(JobVertexID("v"), "Source -> map", 1, 4)}
SEGFAULT = WorkerExit(signal=signal.SIGSEGV)


def call(name: str) -> CurrentUserCall:
    return CurrentUserCall(attempt_id=ATTEMPT, operator_id=OperatorID("o"), operator_name=name)


def test_signal_names_operator_and_subtask() -> None:
    cause = lost_worker_cause(1, SEGFAULT, TASKS, call("map"), "Fatal Python error")
    assert cause.exception_name == "yarrow.container.protocol.errors.WorkerLostError"
    assert cause.message == (
        "the worker of slot 1 was ended by signal 11 (SIGSEGV) while it ran operator 'map' (subtask 2/4)"
    )
    assert cause.operator_name == "map"
    assert cause.stacktrace.endswith("The last output of the worker:\nFatal Python error")


DUMP = """a line of a library
Fatal Python error: Segmentation fault

Thread 0x1 (most recent call first):
  File "io_thread.py", line 91 in run

Current thread 0x2 (most recent call first):
  File "ctypes/__init__.py", line 519 in string_at
  File "job.py", line 6 in f
  File "<yarrow chain 2 input_0>", line 3 in input_0
  File "operator_chain.py", line 188 in _run

Extension modules: numpy (total: 1)"""


def test_of_a_crash_dump_the_users_own_frames_are_shown() -> None:
    text = lost_worker_cause(0, SEGFAULT, TASKS, None, DUMP).stacktrace
    assert text.splitlines()[2:] == [
        "Fatal Python error: Segmentation fault",
        "Current thread 0x2 (most recent call first):",
        '  File "ctypes/__init__.py", line 519 in string_at',
        '  File "job.py", line 6 in f',
    ]
    ours = DUMP.replace(
        '  File "ctypes/__init__.py", line 519 in string_at\n  File "job.py", line 6 in f\n', ""
    )
    assert "operator_chain.py" in lost_worker_cause(0, SEGFAULT, TASKS, None, ours).stacktrace


def test_exit_status_says_who_may_have_asked_for_it() -> None:
    cause = lost_worker_cause(0, WorkerExit(status=5), TASKS, call("map"), "")
    assert "ended with exit status 5 while it ran operator 'map' (subtask 2/4)" in cause.message
    assert "sys.exit" in cause.message


def test_without_a_current_call_the_tasks_are_named() -> None:
    assert "it ran 'Source -> map' (subtask 2/4)" in lost_worker_cause(0, SEGFAULT, TASKS, None, "").message
    many = {
        ExecutionAttemptID(str(number)): SubtaskName(JobVertexID("v"), f"v{number}", 0, 1)
        for number in range(5)
    }
    assert "'v2' (subtask 1/1) and 2 more" in lost_worker_cause(0, SEGFAULT, many, None, "").message
    assert "it ran no task" in lost_worker_cause(0, SEGFAULT, {}, None, "").message


def test_what_the_supervisor_did_itself_is_said() -> None:
    killed = WorkerExit(signal=signal.SIGKILL)
    cause = lost_worker_cause(0, killed, TASKS, None, "", "it did not end in time")
    assert cause.message.endswith("(subtask 2/4): it did not end in time")


def test_current_call_outlives_its_writer(tmp_path: Path) -> None:
    assert read_current_call(tmp_path) is None
    program = (
        "import os, signal; from pathlib import Path\n"
        "from tests.unit.container.supervisor.test_lost_worker import CurrentCallWriter, call\n"
        f"writer = CurrentCallWriter(Path({str(tmp_path)!r}))\n"
        "writer.define(call('first'))\n"
        "writer.running[0] = writer.define(call('second' * 2000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert read_current_call(tmp_path) == call("second" * 2000)


def test_current_call_of_an_idle_worker_is_none(tmp_path: Path) -> None:
    writer = CurrentCallWriter(tmp_path)
    number = writer.define(call("map"))
    writer.running[0] = number
    assert read_current_call(tmp_path) == call("map")
    writer.running[0] = 0
    assert read_current_call(tmp_path) is None
    writer.running[0] = 99
    assert read_current_call(tmp_path) is None
    writer.close()
    (tmp_path / FILE_NAME).write_bytes(b"\x01" + bytes(4095) + b"\x01\x00\x00\x00\xc1")
    assert read_current_call(tmp_path) is None
