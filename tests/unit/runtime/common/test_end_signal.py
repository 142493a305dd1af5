"""EndSignal: a signal ends the wait wherever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Raises the signal at the n-th line that runs below `wait`, its own and those of the library, and waits on.
_PROGRAM = """
import signal, sys
from yarrow.runtime.common.end_signal import EndSignal

ended, lines, wanted = EndSignal(), 0, int(sys.argv[1])

def trace(frame, event, argument):
    def line(frame, event, argument):
        global lines
        if event == "line":
            lines += 1
            if lines == wanted:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
        return line
    return line

def run():
    sys.settrace(trace)
    try:
        for _ in range(100_000):
            if ended.wait(0.001):
                return "ended"
    finally:
        sys.settrace(None)
    return "waited in vain"

print(run(), ended.is_set())
"""


@pytest.mark.parametrize("line", range(1, 26, 3))
def test_a_signal_at_any_step_of_the_wait_ends_it(line: int) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(line)], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.stdout.split() == ["ended", "True"], finished.stderr


_WAITING = """
import sys
from yarrow.runtime.common.end_signal import EndSignal

ended = EndSignal()
print("waits", flush=True)
print(ended.wait(60), ended.wait(60), flush=True)
"""


def test_a_signal_wakes_whoever_waits_and_is_remembered() -> None:
    with subprocess.Popen([sys.executable, "-c", _WAITING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.terminate()
        try:
            assert process.communicate(timeout=120)[0] == "True True\n"
        finally:
            process.kill()
