"""Mains of worker processes for tests: small programs at the other end of the control socket.

`misbehave` does what the first message asks it to, named by the configuration key `test.do`.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from yarrow.container.protocol.framing import FramedSocket
from yarrow.container.protocol.worker_protocol import MessageToWorker, OutputLines, StartWorker, StopWorker


def report(sock: socket.socket) -> int:
    """Answers StartWorker with one line per fact about this process, then waits for the end."""
    framed: FramedSocket[MessageToWorker] = FramedSocket(sock, msgspec.msgpack.Decoder(MessageToWorker))
    start = framed.receive()
    assert isinstance(start, StartWorker)
    framed.send(OutputLines(stream="stdout", text="\n".join(facts(sock))))
    while True:
        message = framed.receive()
        if message is None:
            return 0
        if isinstance(message, StopWorker):
            return 7


def facts(sock: socket.socket) -> list[str]:
    """What a test may want to know of a worker, as `name=value`."""
    import numpy

    descriptors = {int(name): _target(name) for name in os.listdir("/proc/self/fd")}
    open_ones = {fd: target for fd, target in descriptors.items() if target}
    return [
        f"pid={os.getpid()}",
        f"parent={os.getppid()}",
        f"name={Path('/proc/self/comm').read_text().strip()}",
        f"descriptors={sorted(open_ones)}",
        f"control={sock.fileno()}",
        f"stdin={open_ones[0]}",
        f"stdout={open_ones[1]}",
        f"stderr={open_ones[2]}",
        f"random={random.random()}",
        f"numpy={numpy.random.random()}",
        f"threads={len(os.listdir('/proc/self/task'))}",
        f"sigint={signal.getsignal(signal.SIGINT).name}",  # type: ignore[union-attr]
        f"sigchld={signal.getsignal(signal.SIGCHLD).name}",  # type: ignore[union-attr]
        f"modules={','.join(sorted(sys.modules))}",
        f"omp={os.environ['OMP_NUM_THREADS']}",
        f"subprocess={_descriptors_of_a_child()}",
        f"path={sys.path}",
        f"flags={sys.flags}",
        f"blocked={signal.pthread_sigmask(signal.SIG_BLOCK, ())}",
        f"environment={sorted(os.environ.items())}",
        f"large_block={_where_a_large_block_lies()}",
    ]


def _where_a_large_block_lies() -> str:
    """The mapping that malloc took a megabyte from: "[heap]" unless the allocator maps each such block anew."""
    allocate = ctypes.CDLL(None).malloc
    allocate.restype = ctypes.c_void_p
    address = allocate(1 << 20)
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[-1]
    return ""


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        return ""


def _descriptors_of_a_child() -> str:
    listing = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True, check=True)
    return " ".join(listing.stdout.split())


def misbehave(sock: socket.socket) -> int:
    """Ends, or hangs, in the way that `test.do` of the settings says."""
    framed: FramedSocket[MessageToWorker] = FramedSocket(sock, msgspec.msgpack.Decoder(MessageToWorker))
    start = framed.receive()
    if start is None:
        return 0
    assert isinstance(start, StartWorker)
    what = start.settings.configuration["test.do"]
    if what == "segfault":
        ctypes.string_at(0)
    elif what == "sys.exit":
        sys.exit(5)
    elif what == "raise":
        raise RuntimeError("not today")
    elif what == "thread":
        threading.Thread(target=time.sleep, args=(3600,), name="left behind").start()
    elif what == "hang":
        signal.pause()
    elif what == "raw":
        os.write(1, b"from C\n")
        os.write(2, b"an error\n")
    return 3
