"""The size limit of one message; it is checked before sending, and the error names message and limit.

Owner: none (pure). Large payloads belong into the blob store.
"""

from __future__ import annotations

from yarrow.runtime.rpc.errors import AnswerTooLargeError, MessageTooLargeError
from yarrow.runtime.rpc.gateway_type import MethodSchema

#: Flink's default of akka.framesize.
DEFAULT_MAX_MESSAGE_BYTES = 10 * 1024 * 1024


def check_size(method: MethodSchema, kind: str, size: int, limit: int | None) -> None:
    """Raises MessageTooLargeError if a message of `size` bytes is above `limit`.

    The `kind` is "request" or "reply"; for a reply it raises AnswerTooLargeError.
    """
    if limit is not None and size > limit:
        error = AnswerTooLargeError if kind == "reply" else MessageTooLargeError
        raise error(
            f"{method.title}: the {kind} has {size} bytes, the limit of a message is {limit} bytes"
            " (akka.framesize). Raise the limit, or send less: large files and modules travel through the"
            " blob store"
        )
