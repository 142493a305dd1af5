"""LogOrigin: the operator and subtask of the calling code, read from its stack, for log records of user functions.

Owner: any thread; called once for each log record, so that nothing is noted while rows run. Must not change
the stack, nor raise.
"""

from __future__ import annotations

from types import FrameType
from typing import cast

from yarrow.container.chain.chain_loops import ChainLoops
from yarrow.container.operators.base import Operator
from yarrow.container.protocol.failure import GENERATED_PREFIX, is_engine_file
from yarrow.container.task.stream_task import StreamTask

#: (name of the operator or task, index of the subtask)
LogOrigin = tuple[str, int]
NO_ORIGIN: LogOrigin = ("", -1)
#: Whether a file belongs to the engine; cached, because asking the file system is expensive.
_engine_files: dict[str, bool] = {}


def origin_of(frame: FrameType | None) -> LogOrigin:
    """The origin of the code that runs in `frame` or called it; NO_ORIGIN for a thread unknown to the engine."""
    generated: tuple[str, int] | None = None
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith(GENERATED_PREFIX):
            generated = generated or (filename, frame.f_lineno)
        elif _is_engine(filename):
            owner = frame.f_locals.get("self")
            if isinstance(owner, ChainLoops):
                owner = owner.operator_at(*generated) if generated is not None else None
            operator = as_operator(owner)
            if operator is not None and operator.is_set_up:
                return operator.name, operator.context.environment.subtask
            if isinstance(owner, StreamTask):
                return owner.environment.task_name, owner.environment.subtask
        frame = frame.f_back
    return NO_ORIGIN


def as_operator(owner: object) -> Operator | None:
    """What a frame of a stack holds, if it is an operator."""
    # By the class: `isinstance` would ask an object of the program for its `__class__`.
    return cast(Operator, owner) if issubclass(type(owner), Operator) else None


def _is_engine(filename: str) -> bool:
    known = _engine_files.get(filename)
    if known is None:
        known = _engine_files[filename] = is_engine_file(filename)
    return known
