"""Which operator and subtask the calling code belongs to, read from its stack: for what user functions log.

Owner: any thread; called once a record that is logged, so that nothing is noted while rows run. Must not change what it
finds, nor raise.
"""

from __future__ import annotations

from types import FrameType

from yarrow.container.chain.chain_loops import ChainLoops
from yarrow.container.operators.base import Operator
from yarrow.container.protocol.failure import GENERATED_PREFIX, is_engine_file
from yarrow.container.task.stream_task import StreamTask

#: (name of the operator or task, index of the subtask)
LogOrigin = tuple[str, int]
NO_ORIGIN: LogOrigin = ("", -1)
#: Whether a file is the engine's: there are few, and a look at the file system is dear.
_engine_files: dict[str, bool] = {}


def origin_of(frame: FrameType | None) -> LogOrigin:
    """Of the code that runs in `frame`, or called it; NO_ORIGIN for a thread that the engine does not know."""
    generated: tuple[str, int] | None = None
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith(GENERATED_PREFIX):
            generated = generated or (filename, frame.f_lineno)
        elif _is_engine(filename):
            owner = frame.f_locals.get("self")
            if isinstance(owner, ChainLoops):
                owner = owner.operator_at(*generated) if generated is not None else None
            if isinstance(owner, Operator) and owner.is_set_up:
                return owner.name, owner.context.environment.subtask
            if isinstance(owner, StreamTask):
                return owner.environment.task_name, owner.environment.subtask
        frame = frame.f_back
    return NO_ORIGIN


def _is_engine(filename: str) -> bool:
    known = _engine_files.get(filename)
    if known is None:
        known = _engine_files[filename] = is_engine_file(filename)
    return known
