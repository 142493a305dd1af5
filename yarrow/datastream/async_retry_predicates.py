"""Tests on the outcome of an AsyncFunction, for the strategies by which it is tried again.

Pure, usable from any thread.
"""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Whether a result is None or has no element."""
    return result is None or len(result) == 0


def has_exception_predicate(error: BaseException | None) -> bool:
    """Whether there was an exception."""
    return error is not None


def exception_type_predicate(
    error: BaseException | None, expected_error_type: type[BaseException] | tuple[type[BaseException], ...]
) -> bool:
    """Whether the exception is of this class, or of one of these."""
    return isinstance(error, expected_error_type)
