"""InlinedCalls: lines of a loop that fail as the program's own code, such as a function that the loop computes.

Owner: the task thread that runs the loop. It calls a function only behind a failure, for its traceback. It never calls
one behind KeyboardInterrupt, SystemExit and the like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import GeneratorType, MethodType
from typing import Any, NamedTuple, Protocol

from yarrow.container.protocol.failure import generated_line


class LineCall(Protocol):
    """What a line of the loop does for the program."""

    def told(self, error: Exception, variables: Mapping[str, Any]) -> BaseException:
        """The error of the line as the program's author reads it; `variables` are those of the loop."""
        ...


class InlinedCall(NamedTuple):
    """A function, and the variables of the loop with its arguments."""

    function: Callable[..., Any]
    arguments: tuple[str, ...]

    def told(self, error: Exception, variables: Mapping[str, Any]) -> BaseException:
        """The error of another call with the same arguments, which has the function's own lines.

        The error of a function that raises nothing the second time stays as it is: a note then names the function.
        """
        try:
            made = self.function(*[variables[name] for name in self.arguments])
            if isinstance(made, GeneratorType):
                # It runs when somebody asks for its values.
                deque(made, maxlen=0)
        except Exception as again:
            # The error of the loop is no part of the story.
            again.__context__ = error.__context__
            return again
        except BaseException as other:
            error.add_note(_note(self.function, f"it raised {type(other).__name__}"))
            return error
        error.add_note(_note(self.function, "it raised nothing"))
        return error


class InlinedCalls:
    """The calls of one generated function whose errors need telling, by source line."""

    def __init__(self) -> None:
        #: The name of the generated file; known when the function is compiled.
        self.file_name = ""
        self.by_line: dict[int, LineCall] = {}

    def told(self, error: BaseException) -> BaseException:
        """The error as the call of its line tells it; an error of another line stays as it is."""
        if not isinstance(error, Exception) or (found := generated_line(error)) is None:
            return error
        call = self.by_line.get(found[1]) if found[0] == self.file_name else None
        return error if call is None else call.told(error, found[2])


def _note(function: Callable[..., Any], outcome: str) -> str:
    plain: Any = function.__func__ if isinstance(function, MethodType) else function
    code = plain.__code__
    return (
        f"{code.co_qualname} ({code.co_filename}, line {code.co_firstlineno}) raised this."
        f" Called again with the same arguments, {outcome}."
    )
