"""A crash in native code is reported as the operator's whose function called it; an exit as the chain's."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.worker_harness import WorkerHarness
from yarrow.container.supervisor.lost_worker import crashed_frame
from yarrow.container.worker.current_call import (
    CHAINS_FILE_NAME,
    ChainLines,
    CurrentCallWriter,
    read_chain_call,
    read_current_call,
)
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID

DUMP = """Fatal Python error: Segmentation fault

Thread 0x1 (most recent call first):
  File "<yarrow chain 9 input_0>", line 9 in input_0

Current thread 0x2 (most recent call first):
  File "ctypes/__init__.py", line 519 in string_at
  File "<yarrow chain 2 behind_1>", line 4 in behind_1
  File "<yarrow chain 1 input_0>", line 3 in input_0

Extension modules: numpy (total: 1)"""


def test_the_innermost_generated_frame_of_the_crashed_thread_counts() -> None:
    assert crashed_frame(DUMP) == ("<yarrow chain 2 behind_1>", 4)
    assert crashed_frame("a line\n") is None
    assert crashed_frame(DUMP.partition("Current thread")[0]) is None


def test_lines_lead_to_operators(tmp_path: Path) -> None:
    assert read_chain_call(tmp_path, "x", 1) is None
    writer = CurrentCallWriter(tmp_path)
    attempt = ExecutionAttemptID("a_b_0_0")
    for name in ("first", "second"):
        writer.define_chain(
            ChainLines(
                attempt_id=attempt,
                file_name=f"<yarrow chain {name}>",
                operators=((OperatorID("0"), f"{name} a"), (OperatorID("1"), f"{name} b")),
                lines=((3, 0), (4, 1)),
            )
        )
    found = read_chain_call(tmp_path, "<yarrow chain second>", 4)
    assert found is not None
    assert (found.operator_name, found.operator_id, found.attempt_id) == ("second b", "1", attempt)
    assert read_chain_call(tmp_path, "<yarrow chain second>", 9) is None
    assert read_chain_call(tmp_path, "<yarrow chain third>", 3) is None
    writer.close()
    path = tmp_path / CHAINS_FILE_NAME
    path.write_bytes(path.read_bytes()[:-3])
    assert read_chain_call(tmp_path, "<yarrow chain second>", 4) is None


def crash(value: Any) -> Any:
    return ctypes.string_at(0) if value == 50 else value


def leave(value: Any) -> Any:
    if value == 50:
        os._exit(3)
    return value


def run_until_lost(culprit: Any, harness: WorkerHarness) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    stream = env.from_collection(list(range(100))).map(lambda v: v).name("first")
    stream.map(culprit).name("second").map(lambda v: v).name("third").print()
    with pytest.raises(ConnectionError):
        harness.run(env.get_job_graph("crash"))


@pytest.mark.cluster
def test_a_segmentation_fault_in_the_second_of_three_maps(capfd: pytest.CaptureFixture[str]) -> None:
    with WorkerHarness(1) as harness:
        run_until_lost(crash, harness)
        harness._processes[0].wait(60)
        frame = crashed_frame(capfd.readouterr().err)
        assert frame is not None
        call = read_chain_call(Path(harness._folder.name) / "0", *frame)
    assert call is not None
    assert call.operator_name == "second"


@pytest.mark.cluster
def test_an_exit_names_the_chain() -> None:
    with WorkerHarness(1) as harness:
        run_until_lost(leave, harness)
        assert harness._processes[0].wait(60) == 3
        call = read_current_call(Path(harness._folder.name) / "0")
    assert call is not None
    assert "second" in call.operator_name
