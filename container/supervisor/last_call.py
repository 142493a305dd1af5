"""last_call: what a dead worker was doing, found in its folder and in the end of its raw output.

Owner: whoever has seen the worker's end. Must not be asked while the worker lives.
"""

from __future__ import annotations

from pathlib import Path

from yarrow.container.protocol.worker_protocol import CurrentUserCall
from yarrow.container.supervisor.lost_worker import crashed_frame
from yarrow.container.worker.current_call import read_chain_call, read_current_call, read_last_call


def last_call(directory: Path, tail: str) -> CurrentUserCall | None:
    """The operator that the worker ran, with the record if the worker could tell it; `tail` ends its raw output.

    The worker's own word is the best. Then comes the stack of a crash, which has no record. A killed worker leaves its
    last look, which counts if the same task still ran at the end.
    """
    told = read_last_call(directory)
    if told is not None and told.end:
        return told
    frame = crashed_frame(tail)
    crashed = read_chain_call(directory, *frame) if frame is not None else None
    if crashed is not None:
        return crashed
    running = read_current_call(directory)
    if told is not None and (running is None or running.attempt_id == told.attempt_id):
        return told
    return running
