"""How the process of a worker ends."""

from __future__ import annotations

import os
import socket

import pytest

from yarrow.container.launch.worker_process import run_worker_process


def main(control: socket.socket) -> int:
    return 5


def test_the_end_of_the_main_is_no_end_by_user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker replaces `os._exit`, so as to tell that user code has called it."""
    own = os._exit
    monkeypatch.setattr(os, "_exit", lambda status: own(77))
    here, there = socket.socketpair()
    with here, there:
        child = os.fork()
        if child == 0:
            run_worker_process(there, f"{__name__}:main")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
