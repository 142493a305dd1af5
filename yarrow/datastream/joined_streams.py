"""JoinedStreams and CoGroupedStreams: two streams whose rows meet by key in the same window.

Owner: the thread that builds the program. The rows of both streams are tagged and become one keyed stream, which the
window operator cuts into windows. What cannot work is refused here, at the line that asks for it. Must not know the
class of streams that a program sees. See docs/joins.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.functions import CheckpointedFunction, KeySelector
from yarrow.datastream.functions.functions_of_two_streams import (
    CoGroupOfWindow,
    FunctionOfTwoStreams,
    JoinOfWindow,
    KeyOfTaggedRow,
    TagOfFirst,
    TagOfSecond,
)
from yarrow.datastream.functions.two_data_sets_functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
)
from yarrow.datastream.program.user_functions import require_function
from yarrow.datastream.window import Evictor, Trigger, WindowAssigner
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.data.key_types import keys_may_meet
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.transformations import has_no_time, operator_behind

if TYPE_CHECKING:
    KeyFunction = Callable[[Any], Any] | KeySelector[Any, Any]

__all__ = ["CoGroupedStreams", "JoinedStreams"]


class _Stream(Protocol):
    """The part of a DataStream that a join builds on."""

    transformation: Any

    def get_execution_environment(self) -> Any: ...
    def map(self, func: Any, output_type: TypeInformation | None = None) -> Any: ...


#: The class of streams that a program sees.
S = TypeVar("S", bound=_Stream)
#: Two streams by key and window.
W = TypeVar("W")


def require_keys_that_meet(call: str, first: TypeInformation | None, second: TypeInformation | None) -> None:
    """Raises InvalidProgramError for types of which no key of the one is a key of the other."""
    if not keys_may_meet(first, second):
        raise InvalidProgramError(
            f"{call}: keys of type {second} never equal those of the first stream, of type {first}. Let both selectors"
            " return keys of one type"
        )


def require_times(call: str, streams: tuple[Any, Any], otherwise: str) -> None:
    """Raises InvalidProgramError if nothing gives the records of one of the streams a timestamp."""
    environment = streams[0].get_execution_environment()
    if environment.get_stream_time_characteristic() is TimeCharacteristic.INGESTION_TIME:
        return
    for number, stream in zip(("first", "second"), streams, strict=True):
        if has_no_time(stream.transformation):
            raise InvalidProgramError(
                f"{call}: nothing gives the records of the {number} stream a timestamp. Call"
                f" assign_timestamps_and_watermarks on it before, with a strategy that has a timestamp assigner,"
                f" or {otherwise}"
            )


class _TwoStreams(ABC, Generic[S, W]):
    """Two streams whose keys and windows are to be given."""

    def __init__(self, call: str, first: S, second: S) -> None:
        """`call`: the method that began it, for messages."""
        self._call = call
        self._first = first
        self._second = second

    def where(
        self, key_selector: KeyFunction, key_type: TypeInformation | None = None
    ) -> StreamsWithFirstKey[S, W]:
        """Give the key of the first stream, and perhaps its type."""
        require_function(key_selector, KeySelector, "where")
        return StreamsWithFirstKey(self, key_selector, key_type)

    @abstractmethod
    def _windows(self, windowed: Any) -> W:
        """Both streams in windows."""

    def _tagged(
        self, keys: tuple[Any, Any], key_type: TypeInformation | None, assigner: WindowAssigner[Any, Any]
    ) -> Any:
        """The rows of both streams, tagged, by key and in windows."""
        streams = (self._first, self._second)
        if assigner.is_event_time():
            call = f"{self._call} in windows of {type(assigner).__name__}"
            require_times(call, streams, "use windows of processing time")
        types = [stream.transformation.output_type for stream in streams]
        tagged_type = None if None in types else Types.TUPLE([Types.BYTE(), *types])
        tagged = []
        for stream, tag in zip(streams, (TagOfFirst(), TagOfSecond()), strict=True):
            made = stream.map(tag, tagged_type).name("Tag")
            # Tags are made where the rows come from, so that nothing is sent for them.
            made.transformation.parallelism_like = operator_behind(made.transformation.reads[0])
            tagged.append(made)
        keyed = tagged[0].union(tagged[1]).key_by(KeyOfTaggedRow(keys), key_type)
        return keyed.window(assigner)


class StreamsWithFirstKey(Generic[S, W]):
    """Two streams; `where` has given the key of the first one."""

    def __init__(
        self, streams: _TwoStreams[S, W], key_selector: KeyFunction, key_type: TypeInformation | None
    ) -> None:
        self._streams = streams
        self._key_selector = key_selector
        self._key_type = key_type

    def equal_to(
        self, key_selector: KeyFunction, key_type: TypeInformation | None = None
    ) -> StreamsByKey[S, W]:
        """Give the key of the second stream. Raises InvalidProgramError if it is never one of the first stream."""
        require_function(key_selector, KeySelector, "equal_to")
        require_keys_that_meet("equal_to", self._key_type, key_type)
        selectors = (self._key_selector, key_selector)
        return StreamsByKey(self._streams, selectors, self._key_type or key_type)


class StreamsByKey(Generic[S, W]):
    """Two streams by key."""

    def __init__(
        self,
        streams: _TwoStreams[S, W],
        selectors: tuple[KeyFunction, KeyFunction],
        key_type: TypeInformation | None,
    ) -> None:
        self._streams = streams
        self._selectors = selectors
        self._key_type = key_type

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> W:
        """Cut both streams into windows. Raises InvalidProgramError for event time that nothing gives.

        An assigner or trigger of one's own gets (0, row, None) for a row of the first stream. It gets (1, None, row)
        for one of the second stream.
        """
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(
                f"window takes a WindowAssigner, such as TumblingEventTimeWindows.of(Duration.of_seconds(5)), not"
                f" {window_assigner!r}"
            )
        streams = self._streams
        return streams._windows(streams._tagged(self._selectors, self._key_type, window_assigner))


class _WindowsOfTwoStreams(Generic[S]):
    """Two streams by key and window."""

    _name: str

    def __init__(self, windowed: Any) -> None:
        self._windowed = windowed

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set when windows fire, in place of the assigner's default trigger."""
        self._windowed.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Set what removes rows of a window that fires, before or behind the function.

        The evictor gets the rows of both streams in one list, tagged as for a trigger.
        """
        self._windowed.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Let windows take late records for so long behind their end, in milliseconds of event time.

        A late record fires its window again, with all its rows.
        """
        self._windowed.allowed_lateness(time_ms)
        return self

    def _apply(self, function: FunctionOfTwoStreams, user: Any, output_type: TypeInformation | None) -> S:
        if isinstance(user, CheckpointedFunction):
            raise UnsupportedFeatureError(
                f"apply: {type(user).__name__} is a CheckpointedFunction. Functions of two streams in windows keep no"
                " operator state in this version: use keyed state, or keep it in an operator before or behind."
            )
        made: S = self._windowed.apply(function, output_type).name(self._name)
        return made


class CoGroupedWindows(_WindowsOfTwoStreams[S], Generic[S]):
    """Two streams by key and window, whose rows a function gets together."""

    _name = "Window CoGroup"

    def apply(
        self,
        function: Callable[[Any, Any], Any] | CoGroupFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> S:
        """Return all results of a function that gets the rows of a key and window, as an iterator of each stream.

        The function is called if one of the streams has a row there. Results bear the last time of the window.
        """
        require_function(function, CoGroupFunction, "apply")
        return self._apply(CoGroupOfWindow(function), function, output_type)


class JoinedWindows(_WindowsOfTwoStreams[S], Generic[S]):
    """Two streams by key and window, whose rows are joined."""

    _name = "Window Join"

    def __init__(self, windowed: Any, kind: JoinKind) -> None:
        super().__init__(windowed)
        self._kind = kind

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set when windows fire. Raises InvalidProgramError for an outer join."""
        self._require_inner("trigger")
        return super().trigger(trigger)

    def allowed_lateness(self, time_ms: int) -> Self:
        """Let windows take late records, in milliseconds of event time.

        Raises InvalidProgramError for an outer join.
        """
        if time_ms != 0:
            self._require_inner("allowed_lateness")
        return super().allowed_lateness(time_ms)

    def _require_inner(self, call: str) -> None:
        if self._kind is not JoinKind.INNER:
            raise InvalidProgramError(
                f"{call}: a window of an outer join fires once, at its end. If it fired earlier, rows without a partner"
                " would leave although their partner could still come. Use co_group to decide that yourself"
            )

    def apply(
        self,
        function: Callable[[Any, Any], Any] | JoinFunction[Any, Any, Any] | FlatJoinFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> S:
        """Return what a function gives for each pair of rows of a key and window.

        A FlatJoinFunction, and a generator, may give any number of results; any other function gives one. Results bear
        the last time of the window.
        """
        is_flat = isinstance(function, FlatJoinFunction) or isgeneratorfunction(function)
        require_function(function, FlatJoinFunction if is_flat else JoinFunction, "apply")
        joining = JoinOfWindow(
            function,
            is_flat=is_flat,
            keeps_first=self._kind.keeps_first,
            keeps_second=self._kind.keeps_second,
        )
        return self._apply(joining, function, output_type)


class JoinedStreams(_TwoStreams[S, JoinedWindows[S]], Generic[S]):
    """Two streams that are joined by key and window. Made by `DataStream.join` and its outer forms."""

    def __init__(self, first: S, second: S, kind: JoinKind = JoinKind.INNER) -> None:
        super().__init__("join" if kind is JoinKind.INNER else f"{kind.value.lower()}_join", first, second)
        self._kind = kind

    def _windows(self, windowed: Any) -> JoinedWindows[S]:
        return JoinedWindows(windowed, self._kind)


class CoGroupedStreams(_TwoStreams[S, CoGroupedWindows[S]], Generic[S]):
    """Two streams whose rows a function gets together, by key and window. Made by `DataStream.co_group`."""

    def __init__(self, first: S, second: S) -> None:
        super().__init__("co_group", first, second)

    def _windows(self, windowed: Any) -> CoGroupedWindows[S]:
        return CoGroupedWindows(windowed)
