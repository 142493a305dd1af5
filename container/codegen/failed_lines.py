"""FailedLines: sentences for lines of a loop that fail by a value of the program, where no function of it runs.

Owner: the task thread, behind a failure. An error that user code has raised stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from yarrow.container.codegen.user_functions import is_iterable
from yarrow.container.protocol.failure import has_user_frame
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.data.errors import MismatchedFieldError, MissingFieldError, NoResultsError


def fields_of(getter: itemgetter[Any]) -> tuple[Any, ...]:
    """The fields that an itemgetter reads."""
    # It tells them to pickle alone.
    reduced: Any = getter.__reduce__()
    return tuple(reduced[1])


def key_error(selector: Any, record: Any, error: BaseException) -> BaseException:
    """The error of a key selector: it names the field if the selector reads fields, and the record lacks one."""
    if not isinstance(selector, itemgetter) or has_user_frame(error):
        return error
    return MissingFieldError.first_missing(record, fields_of(selector)) or error


class FieldsRead(NamedTuple):
    """A line that reads fields of the record in a variable."""

    fields: Sequence[Any]
    record: str

    def told(self, error: Exception, variables: Mapping[str, Any]) -> BaseException:
        """The error with the field that the record lacks."""
        if has_user_frame(error):
            return error
        record = variables[self.record]
        return MissingFieldError.first_missing(record, self.fields) or error


class FieldAggregated(NamedTuple):
    """A line that aggregates a field of the record in a variable; None = the record itself."""

    field: int | str | None
    record: str

    def told(self, error: Exception, variables: Mapping[str, Any]) -> BaseException:
        """The error with the field that the record lacks, or whose values do not fit each other."""
        return aggregate_error(self.field, variables[self.record], error)


def aggregate_error(field: int | str | None, record: Any, error: BaseException) -> BaseException:
    """The error of a built-in aggregate: it names the field, and the record that has none or one that does not fit."""
    if has_user_frame(error) or isinstance(error, YarrowError):
        return error
    missing = None if field is None else MissingFieldError.first_missing(record, [field])
    if missing is not None:
        return missing
    return MismatchedFieldError(field, record, str(error)) if isinstance(error, TypeError) else error


class ResultsRead(NamedTuple):
    """A line that goes through the results of a function, which are in a variable."""

    results: str

    def told(self, error: Exception, variables: Mapping[str, Any]) -> BaseException:
        """The error with what the function gave, if that was no iterable."""
        results = variables[self.results]
        return error if is_iterable(results) else NoResultsError(results)
