"""Attribution: names the operator in exceptions of calls outside generated code.

Owner: the task thread. It changes no exception that already names an operator, and swallows none.
"""

from __future__ import annotations

from yarrow.container.protocol.failure import OperatorFailure


class Attribution:
    """A context around calls of one operator's user code."""

    def __init__(self, operator_name: str) -> None:
        self._operator_name = operator_name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, OperatorFailure):
            raise OperatorFailure(self._operator_name, "", error) from error
