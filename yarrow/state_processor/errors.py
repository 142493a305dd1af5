"""Errors of the state processor: a part of a savepoint cannot be read as a table, or written.

Owner: none (raised on the calling thread). Each message names the operator and state, or the path.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError


class StateProcessorError(YarrowError):
    """A request that does not fit the savepoint: no such operator, no such state, a table of another form."""
