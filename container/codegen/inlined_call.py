"""InlinedCalls: the user's functions that a loop computes instead of calling them. They fail as calls would.

Owner: the task thread that runs the loop. It calls a function only behind a failure, for its traceback. It never calls
one behind KeyboardInterrupt, SystemExit and the like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import GeneratorType, MethodType
from typing import Any, NamedTuple

from yarrow.container.protocol.failure import generated_line


class InlinedCall(NamedTuple):
    """A function, and the variables of the loop with its arguments."""

    function: Callable[..., Any]
    arguments: tuple[str, ...]


class InlinedCalls:
    """The inlined calls of one generated function, by source line."""

    def __init__(self) -> None:
        #: The name of the generated file; known when the function is compiled.
        self.file_name = ""
        self.by_line: dict[int, InlinedCall] = {}

    def told(self, error: BaseException) -> BaseException:
        """The error with the function's own lines in its traceback, from a call with the same arguments.

        An error that no inlined call has raised stays as it is. So does the error of a function that raises nothing
        the second time: a note then names the function.
        """
        found = generated_line(error) if isinstance(error, Exception) else None
        if found is None or found[0] != self.file_name:
            return error
        call = self.by_line.get(found[1])
        if call is None:
            return error
        try:
            made = call.function(*[found[2][name] for name in call.arguments])
            if isinstance(made, GeneratorType):
                # It runs when somebody asks for its values.
                deque(made, maxlen=0)
        except Exception as again:
            # The error of the loop is no part of the story.
            again.__context__ = error.__context__
            return again
        except BaseException as other:
            error.add_note(_note(call.function, f"it raised {type(other).__name__}"))
            return error
        error.add_note(_note(call.function, "it raised nothing"))
        return error


def _note(function: Callable[..., Any], outcome: str) -> str:
    plain: Any = function.__func__ if isinstance(function, MethodType) else function
    code = plain.__code__
    return (
        f"{code.co_qualname} ({code.co_filename}, line {code.co_firstlineno}) raised this."
        f" Called again with the same arguments, {outcome}."
    )
