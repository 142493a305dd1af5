"""FailureCauses: turns a task's exception into a FailureCause for Python users: the user's own frames come first.

Owner: the task thread that caught it. Frames of this engine and of generated chain code are left out if a
user frame remains. A failure of the engine alone keeps all frames. Long text is cut to a length that every
message can carry: each exception keeps its type and both ends of its message. Must not raise, whatever a
record's repr does.
"""

from __future__ import annotations

import os
import reprlib
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType, TracebackType

import yarrow
from yarrow.container.protocol.errors import ChannelFailedError
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.short_text import cut_in_the_middle
from yarrow.runtime.data.errors import UnsupportedKeyError
from yarrow.runtime.rpc.messages import FailureCause

#: File name prefix of generated chains, see chain_compiler.
GENERATED_PREFIX = "<yarrow chain"

_ROOT = os.path.dirname(os.path.realpath(yarrow.__file__))
_OWN_FOLDERS = tuple(
    os.path.realpath(os.path.join(_ROOT, part)) + os.sep for part in ("", "container", "runtime", "am")
)
_record_repr = reprlib.Repr()
_record_repr.maxstring = _record_repr.maxother = 120
_record_repr.maxlist = _record_repr.maxdict = 8
_record_repr.maxtuple = 12


#: Most characters of one part of a traceback: a frame, or an exception with its message.
_LONGEST_PART = 5_000
#: Most characters of a traceback; its last part lies in the kept end.
LONGEST_TRACE = 12_000
#: Most characters of a message without its traceback.
LONGEST_MESSAGE = 1_000

_MISSING_MODULE = (
    "  ship the module with add_python_file (-pyfs), or install it in the environment of the workers"
    f" ({sys.executable})\n"
)


class OperatorFailure(Exception):
    """Carries a user function's exception, with its operator and the present record."""

    def __init__(
        self, operator_name: str, record: str, cause: BaseException, *, in_exchange: bool = False
    ) -> None:
        """`in_exchange`: the task before failed, as it looked for the operator's subtask that gets the record."""
        super().__init__(operator_name)
        self.in_exchange = in_exchange
        self.operator_name = operator_name
        self.record = record
        if isinstance(cause, UnsupportedKeyError):
            cause = cause.for_operator(operator_name).with_traceback(cause.__traceback__)
        self.cause = cause


def short_record(value: object) -> str:
    """A short form of a record that never raises and never spans many lines."""
    try:
        text = _record_repr.repr(value)
    except BaseException as error:  # also SystemExit: the reported failure matters more
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text.replace("\n", "\\n")[:300]


def failure_cause(error: BaseException, where: str = "", *, in_loading: bool = False) -> FailureCause:
    """The cause to report; `where` names task and subtask.

    A missing module is final where code is loaded. A module that a running function looks for may be there at the next
    attempt.
    """
    operator, record, place = "", "", ""
    if isinstance(error, OperatorFailure):
        operator, record = error.operator_name, error.record
        place = (
            f"the exchange before operator '{operator}'" if error.in_exchange else f"operator '{operator}'"
        )
        error = error.cause
    kind = type(error)
    text = format_user_first(error)
    if isinstance(error, ModuleNotFoundError):
        text += _MISSING_MODULE
    context = ", ".join(part for part in (place, where) if part)
    if context:
        text += f"  in {context}\n"
    if record:
        text += f"  while it had the record {record}\n"
    try:
        message = str(error)
    except Exception as raised:
        message = f"<{kind.__name__} whose text raised {type(raised).__name__}>"
    if isinstance(error, SystemExit):
        message = f"user code called sys.exit({error.code!r})"
    return FailureCause(
        exception_name=f"{kind.__module__}.{kind.__qualname__}",
        message=cut_in_the_middle(message, LONGEST_MESSAGE),
        stacktrace=text,
        operator_name=operator,
        record=record,
        lost_result=error.lost_result if isinstance(error, ChannelFailedError) else "",
        is_final=(isinstance(error, YarrowError) and error.is_final)
        or (in_loading and isinstance(error, ModuleNotFoundError)),
        needs_user=isinstance(error, YarrowError) and error.needs_user,
    )


def format_user_first(error: BaseException) -> str:
    """The traceback without frames of the engine, if any user frame remains."""
    described = traceback.TracebackException.from_exception(error)
    if isinstance(error, YarrowError) and not _has_user_frame(described):
        # Our own typed errors say everything in their message; frames of the engine would only hide it.
        return _joined(described.format_exception_only())
    seen: set[int] = set()
    pending: list[traceback.TracebackException | None] = [described]
    while pending:
        part = pending.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        kept = [frame for frame in part.stack if not is_engine_file(frame.filename)]
        if kept:
            part.stack = traceback.StackSummary.from_list(kept)
        if part.__context__ is not None and part.__cause__ is None and not _has_user_frame(part.__context__):
            # Exceptions that the engine caught on the way (such as a table miss) mean nothing to the user.
            part.__context__ = None
        pending += [part.__cause__, part.__context__]
    return _joined(described.format())


def _joined(parts: Iterable[str]) -> str:
    return cut_in_the_middle("".join(cut_in_the_middle(part, _LONGEST_PART) for part in parts), LONGEST_TRACE)


def _has_user_frame(part: traceback.TracebackException) -> bool:
    return any(not is_engine_file(frame.filename) for frame in part.stack)


def has_user_frame(error: BaseException, module: ModuleType | None = None) -> bool:
    """Whether code that is not the engine's has raised the error, or called what raised it.

    `module` is one of Python's own that the engine calls.
    """
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
    if module is not None:
        files.discard(str(module.__file__))
    return not all(map(is_engine_file, files))


def is_engine_file(filename: str) -> bool:
    """True for files of this engine and generated chains; connectors and user code are not the engine's."""
    if filename.startswith((GENERATED_PREFIX, "<frozen ")):
        return True
    real = os.path.realpath(filename)
    return real.startswith(_OWN_FOLDERS)


def generated_line(error: BaseException) -> tuple[str, int, dict[str, object]] | None:
    """File, line and locals of the innermost frame of generated code in the traceback."""
    found: tuple[str, int, dict[str, object]] | None = None
    tb: TracebackType | None = error.__traceback__
    while tb is not None:
        filename = tb.tb_frame.f_code.co_filename
        if filename.startswith(GENERATED_PREFIX):
            found = (filename, tb.tb_lineno, tb.tb_frame.f_locals)
        tb = tb.tb_next
    return found
