"""EmittedResults: passes results of timers and watermarks to generated loops, with as few calls as possible.

Owner: the task thread. A loop pulls one result after another, so that each result is processed before the
function continues, which may change an emitted object. Must not keep a result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from yarrow.container.chain.chain_loops import ChainLoops
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.output_tag import OutputTag

#: Most results of one loop call: a loop's knowledge of its rows, and its counts, take effect at the next
#: call.
_MOST_IN_A_CALL = 1024
#: A value and its timestamp.
_Result = tuple[Any, int | None]


class EmittedResults:
    """The results of one operator call outside the loop over its input."""

    def __init__(
        self,
        loops: ChainLoops,
        operator: tuple[int, str],
        results: Iterable[_Result],
        side_outputs: Collection[str] | None,
    ) -> None:
        """`operator`: its index and name. `side_outputs`: the consumed ones, None if it emits no tagged rows."""
        self._loops = loops
        self._index, self._name = operator
        self._results = iter(results)
        self._side_outputs = side_outputs
        #: The next result: the operator has emitted it, and no loop has taken it.
        self._held: _Result | None = None
        self._stamp: int | None = None
        #: Number of processed results.
        self.count = 0

    def flow_on(self) -> None:
        """Processes all results. Raises OperatorFailure with the operator whose code fails."""
        try:
            self._held = next(self._results, None)
        except OperatorFailure:
            raise
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self._name, "", error) from error
        behind = ("behind", self._index, None)
        while (held := self._held) is not None:
            if held[1] is None:
                self._loops.run(behind, self._values(with_timestamps=False), None)
            else:
                self._loops.run(behind, self._values(with_timestamps=True), self._timestamps())

    def _values(self, *, with_timestamps: bool) -> Iterator[Any]:
        """The next values of the main output; ends before the first timestamp if the loop has none."""
        held, self._held = self._held, None
        assert held is not None
        side_outputs = self._side_outputs
        try:
            for result in islice(chain((held,), self._results), _MOST_IN_A_CALL):
                value, stamp = result
                if stamp is not None and not with_timestamps:
                    self._held = result
                    return
                self.count += 1
                if (
                    side_outputs is not None
                    and type(value) is tuple
                    and len(value) == 2
                    and type(value[0]) is OutputTag
                ):
                    self._emit_aside(value[0].tag_id, value[1], stamp)
                else:
                    self._stamp = stamp
                    yield value
            self._held = next(self._results, None)
        except (OperatorFailure, GeneratorExit):
            raise
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self._name, "", error) from error

    def _emit_aside(self, tag_id: str, value: Any, stamp: int | None) -> None:
        if self._side_outputs is not None and tag_id in self._side_outputs:
            self._loops.run(("behind", self._index, tag_id), (value,), None if stamp is None else (stamp,))

    def _timestamps(self) -> Iterator[int | None]:
        """The timestamp of the last value of `_values`."""
        while True:
            yield self._stamp
