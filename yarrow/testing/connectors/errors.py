"""ConnectorCheckError: a connector has not kept what it claims. Owner: the test's thread."""

from __future__ import annotations


class ConnectorCheckError(AssertionError):
    """A connector has lost, doubled, invented or left something under a plan, or its job has failed.

    The message has the plan, the call that makes the plan again, and the rows.
    """
