"""Errors of remote calls, which cross processes as class name, message and plain details.

Owner: none (pure). Never pickles an exception and never imports a module because a peer named it. An error
gets its own class back only if that class is ours and already loaded.
"""

from __future__ import annotations

import traceback
from typing import Any

import msgspec

from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.short_text import cut_in_the_middle


class RpcError(YarrowError):
    """A remote call failed."""


class RpcUnavailableError(RpcError):
    """No answer came: nobody serves at the address, the connection broke, or the deadline passed.

    A retry may help.
    """


class RpcTimeoutError(RpcUnavailableError):
    """The deadline of a call passed; whether the receiver executed it is unknown."""


class EndpointNotFoundError(RpcUnavailableError):
    """The process at the address does not serve an endpoint of that name (yet, or any more)."""


class EndpointStoppedError(EndpointNotFoundError):
    """The endpoint stopped while it executed the call: the outcome is unknown."""


class LeaderTokenError(FencingTokenError):
    """The endpoint refused a call without its own token, and did nothing."""


class HandshakeError(RpcError):
    """Engine version, Python version or application differ between the two ends."""


class CallerNotAllowedError(RpcError):
    """The role in the caller's certificate may not call the method; nothing was decoded or done."""


class MessageTooLargeError(RpcError):
    """A message is longer than the limit."""


class AnswerTooLargeError(MessageTooLargeError):
    """The call was executed, but its answer is longer than the limit of a message."""


class InvalidMessageError(RpcError):
    """A message does not decode as the gateway declares it."""


class RemoteError(RpcError):
    """The receiver failed with a foreign error; the text contains the remote trace."""

    def __init__(self, message: str, exception_name: str = "") -> None:
        super().__init__(message)
        #: Qualified class name of the original error.
        self.exception_name = exception_name


class WireError(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """The wire form of an error."""

    exception_name: str
    message: str
    details: dict[str, Any]
    #: The receiver's trace: for logs, and for foreign errors.
    trace: str


#: Most characters of an error's message, and of its trace: both must fit a message with room to spare.
_LONGEST_TEXT = 100_000
_PLAIN = (str, int, float, bool, type(None))


def qualified_name(kind: type[BaseException]) -> str:
    """`module.Class` of an exception class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def to_wire(error: BaseException) -> WireError:
    """The error's wire form; attributes other than plain values are left out."""
    details = {name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)}
    own = isinstance(error, YarrowError)
    trace = "" if own else cut_in_the_middle("".join(traceback.format_exception(error)), _LONGEST_TEXT)
    return WireError(
        qualified_name(type(error)), cut_in_the_middle(str(error), _LONGEST_TEXT), details, trace
    )


def from_wire(wire: WireError) -> YarrowError:
    """The same typed error if its class is ours and loaded here, else a RemoteError that quotes it."""
    known = _known_errors().get(wire.exception_name)
    if known is None:
        text = wire.trace or wire.message
        return RemoteError(f"the receiver failed with {wire.exception_name}:\n{text}", wire.exception_name)
    error = known.__new__(known, wire.message)
    error.args = (wire.message,)
    vars(error).update(wire.details)
    return error


def _known_errors() -> dict[str, type[YarrowError]]:
    found: dict[str, type[YarrowError]] = {}
    todo: list[type[YarrowError]] = [YarrowError]
    while todo:
        kind = todo.pop()
        found[qualified_name(kind)] = kind
        todo.extend(kind.__subclasses__())
    return found
