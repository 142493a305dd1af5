"""Noticing the end of processes that are not our children."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from yarrow.runtime.common.process_exit import ProcessExitWatch, ancestors_to, parent_of, process_name


def waiting_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_the_end_of_one_of_several_is_noticed() -> None:
    gone, noticed = threading.Event(), []

    def on_exit(pid: int) -> None:
        noticed.append(pid)
        gone.set()

    with waiting_process() as first, waiting_process() as second:
        watch = ProcessExitWatch([first.pid, second.pid], on_exit)
        watch.start()
        second.kill()
        assert gone.wait(120)
        assert noticed == [second.pid]
        watch.stop()
        first.kill()


def test_nobody_is_called_after_stop() -> None:
    called: list[int] = []
    with waiting_process() as process:
        watch = ProcessExitWatch([process.pid], called.append)
        watch.start()
        watch.stop()
        process.kill()
    assert called == []


def test_a_process_that_has_gone_already_counts() -> None:
    gone = threading.Event()
    with waiting_process() as process:
        process.kill()
    ProcessExitWatch([process.pid], lambda pid: gone.set()).start()
    assert gone.wait(120)


def test_ancestors_up_to_a_name() -> None:
    parent = os.getppid()
    assert parent_of(os.getpid()) == parent
    assert ancestors_to(process_name(parent), os.getpid()) == [parent]
    assert ancestors_to("no such name", os.getpid()) == [parent]
    assert parent_of(2**22 + 1) == 0 and process_name(2**22 + 1) == ""
