"""What a dead worker was doing: its own word, the stack of a crash, its last look, or the chain that ran."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from yarrow.container.launch.worker_launcher import WorkerExit
from yarrow.container.protocol.worker_protocol import CurrentUserCall
from yarrow.container.supervisor.last_call import last_call
from yarrow.container.supervisor.lost_worker import lost_worker_cause
from yarrow.container.worker.current_call import LAST_FILE_NAME, ChainLines, CurrentCallWriter
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID

OWN, OTHER = ExecutionAttemptID("own"), ExecutionAttemptID("other")
CRASH = """Fatal Python error: Aborted

Current thread 0x2 (most recent call first):
  File "<yarrow chain 2 input_0>", line 4 in input_0
"""


def call(name: str, attempt: ExecutionAttemptID = OWN, record: str = "", end: str = "") -> CurrentUserCall:
    return CurrentUserCall(
        attempt_id=attempt, operator_id=OperatorID(""), operator_name=name, record=record, end=end
    )


@pytest.fixture
def writer(tmp_path: Path) -> CurrentCallWriter:
    made = CurrentCallWriter(tmp_path)
    made.running[0] = made.define(call("chain"))
    made.define_chain(
        ChainLines(
            attempt_id=OWN,
            file_name="<yarrow chain 2 input_0>",
            operators=((OperatorID("a"), "crashed"),),
            lines=((4, 0),),
        )
    )
    return made


def test_the_workers_own_word_is_the_best(writer: CurrentCallWriter, tmp_path: Path) -> None:
    word = call("told", OTHER, "7", "user code ended the process with os._exit(3)")
    writer.note_last(word)
    assert last_call(tmp_path, CRASH) == word


def test_the_stack_of_a_crash_comes_before_the_last_look(writer: CurrentCallWriter, tmp_path: Path) -> None:
    writer.note_last(call("seen", OWN, "7"))
    found = last_call(tmp_path, CRASH)
    assert found is not None and (found.operator_name, found.record) == ("crashed", "")


def test_the_last_look_counts_if_the_same_task_ran_at_the_end(
    writer: CurrentCallWriter, tmp_path: Path
) -> None:
    assert last_call(tmp_path, "") == call("chain")
    writer.note_last(call("seen", OWN, "7"))
    assert last_call(tmp_path, "") == call("seen", OWN, "7")
    writer.note_last(call("seen", OTHER, "8"))
    assert last_call(tmp_path, "") == call("chain")
    writer.running[0] = 0
    assert last_call(tmp_path, "") == call("seen", OTHER, "8")
    writer.note_last(None)
    assert last_call(tmp_path, "") is None


def test_half_a_word_is_none(writer: CurrentCallWriter, tmp_path: Path) -> None:
    writer.running[0] = 0
    writer.note_last(call("seen", OWN, "7"))
    path = tmp_path / LAST_FILE_NAME
    whole = path.read_bytes()
    for size in (0, 2, len(whole) - 3):
        path.write_bytes(whole[:size])
        assert last_call(tmp_path, "") is None


def test_word_and_look_are_told_apart() -> None:
    end = WorkerExit(status=3)
    word = call("map", OWN, "7", "user code ended the process with os._exit(3)")
    told = lost_worker_cause(0, end, {}, word, "")
    assert told.message == (
        "the worker of slot 0 ended with exit status 3 while it ran operator 'map' with the record 7:"
        " user code ended the process with os._exit(3)"
    )
    assert (told.operator_name, told.record) == ("map", "7")
    seen = lost_worker_cause(0, WorkerExit(signal=signal.SIGKILL), {}, call("map", OWN, "7"), "")
    assert seen.message.endswith("it ran operator 'map'. When it was last looked at, it had the record 7")
