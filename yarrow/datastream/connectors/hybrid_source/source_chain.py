"""HybridSource: what a program builds of the sources that are read one after another.

Owner: the client; the enumerator and the readers that it makes belong to their threads. The semantics are those of
Flink's HybridSource (FLIP-150).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import cloudpickle

from yarrow.common.values.delivery import weakest_replay
from yarrow.datastream.connectors.base import (
    Boundedness,
    Replay,
    Source,
    SourceReaderContext,
    SourceRecords,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.dead_letters import DeadLetter, strictest
from yarrow.datastream.connectors.hybrid_source.hybrid_enumerator import HybridSplitEnumerator
from yarrow.datastream.connectors.hybrid_source.hybrid_reader import HybridSourceReader, placed
from yarrow.datastream.connectors.hybrid_source.hybrid_splits import HybridSourceSplit, MadeSource
from yarrow.runtime.common.errors import InvalidProgramError

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.common.typeinfo import TypeInformation
    from yarrow.common.values.kept_schema import KeptSchema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceSwitchContext:
    """What is known where one source has ended and the next one is made."""

    previous_enumerator: SplitEnumerator[Any]

    def get_previous_enumerator(self) -> SplitEnumerator[Any]:
        """Return the enumerator of the source that has ended: it may say at which position the next one begins."""
        return self.previous_enumerator


SourceFactory = Callable[[SourceSwitchContext], Source[Any, Any]]


@dataclass(frozen=True, slots=True)
class _Link:
    """A source of the chain, or what makes it at the switch."""

    source: Source[Any, Any] | None
    factory: SourceFactory | None
    boundedness: Boundedness
    replay: Replay


class HybridSource(Source[T, HybridSourceSplit], Generic[T]):
    """Sources read one after another; made by a builder.

    All but the last are bounded. The next source begins when all readers have read the present one to its end. A
    checkpoint holds the place of the present source and its positions.
    """

    def __init__(self, links: Sequence[_Link], default_scheme: str | None = None) -> None:
        """`default_scheme`: the file system of plain paths in sources that functions make; None = as they are."""
        self._links = tuple(links)
        self._default_scheme = default_scheme
        given = self._given()
        self.blocking = any(source.blocking for source in given) or len(given) < len(self._links)
        self.replay = weakest_replay(link.replay for link in self._links)
        self.errors = strictest(source.errors for source in given)
        self.adds_columns = any(source.adds_columns for source in given)
        # Nobody knows yet what a source counts that is made at its switch.
        self.counts_bytes = self._all_given and all(source.counts_bytes for source in given)

    @staticmethod
    def builder(first_source: Source[T, Any]) -> HybridSourceBuilder[T]:
        """A builder of a chain that begins with this source."""
        return HybridSourceBuilder[T]([]).add_source(first_source)

    def _given(self) -> list[Source[Any, Any]]:
        return [link.source for link in self._links if link.source is not None]

    @property
    def boundedness(self) -> Boundedness:
        return self._links[-1].boundedness

    # ------------------------------------------------------------------ the chain

    @property
    def last_index(self) -> int:
        """The place of the last source."""
        return len(self._links) - 1

    def made_at(self, index: int, previous: SplitEnumerator[Any]) -> MadeSource | None:
        """Make the source at a place, behind the enumerator of the one before; None = the program gave the source.

        Raises InvalidProgramError for a function that makes no source, or one of another boundedness or with other
        columns. The error of the source's own `validate` passes through.
        """
        link = self._links[index]
        if link.factory is None:
            return None
        source = link.factory(SourceSwitchContext(previous))
        if not isinstance(source, Source) or source.boundedness is not link.boundedness:
            raise InvalidProgramError(
                f"HybridSource: the function of source {index} must return a source that is"
                f" {link.boundedness.value}, not {source!r}"
            )
        if weakest_replay([link.replay, source.replay]) is not link.replay:
            raise InvalidProgramError(
                f"HybridSource: {type(source).__name__}, source {index}, replays '{source.replay}', and the program"
                f" was checked for '{link.replay}': pass replay=Replay.{source.replay.name} to add_source"
            )
        if self._default_scheme is not None:
            source = source.with_default_scheme(self._default_scheme)
        source.validate()
        _check_columns(index, source.produced_schema(), self.produced_schema())
        return MadeSource(cloudpickle.dumps(source))

    def source_at(self, index: int, made: MadeSource | None) -> Source[Any, Any]:
        """Return the source at a place; `made` is what `made_at` gave."""
        given = self._links[index].source
        if given is not None:
            return given
        if not isinstance(made, MadeSource):
            raise ValueError(
                f"HybridSource: source {index} is made at the switch, and the state holds {type(made).__name__} for it"
            )
        source: Source[Any, Any] = pickle.loads(made.pickled)
        return source

    # ------------------------------------------------------------------ Source

    def create_enumerator(
        self, context: SplitEnumeratorContext[HybridSourceSplit], checkpoint: Any = None
    ) -> HybridSplitEnumerator:
        """An enumerator that runs those of the sources."""
        return HybridSplitEnumerator(context, self, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> HybridSourceReader[T]:
        """A reader that runs those of the sources."""
        return HybridSourceReader(context, self)

    def history(self) -> HybridSource[T] | None:
        """None: the end of one source is needed before the next is known, so no history of all is read at once."""
        return None

    def letter_reader(self) -> Callable[[DeadLetter], SourceRecords] | None:
        """Return what reads each letter as the source at its place does; None = no source of the program can."""
        readers = {
            place: reader
            for place, link in enumerate(self._links)
            if link.source is not None and (reader := link.source.letter_reader()) is not None
        }

        def read(letter: DeadLetter) -> SourceRecords:
            place, *inner = letter.places
            records = readers[place](letter._replace(places=tuple(inner)))
            if records.side is not None:
                records.side = placed(place, records.side)
            return records

        return read if readers else None

    def letter_refusal(self, letter: DeadLetter) -> str | None:
        """Return why no source can read the letter; None = the one at its place can."""
        if not letter.places:
            return "they do not tell which source of a HybridSource had read them, as letters of older releases do not"
        place, *inner = letter.places
        if place > self.last_index:
            return f"source {place} of a HybridSource had read them, and the program's last one is {self.last_index}"
        source = self._links[place].source
        if source is None:
            return (
                f"source {place} of the HybridSource is made by a function at its switch, which nobody can make here."
                " Give the repaired program the source itself"
            )
        if source.letter_reader() is None:
            return (
                f"{type(source).__name__}, source {place} of the HybridSource, reads no single records. Only text, CSV,"
                " JSON lines and Kafka can"
            )
        return source.letter_refusal(letter._replace(places=tuple(inner)))

    def with_default_scheme(self, default: str) -> HybridSource[T]:
        return HybridSource(
            [
                link
                if link.source is None
                else _Link(link.source.with_default_scheme(default), None, link.boundedness, link.replay)
                for link in self._links
            ],
            default,
        )

    def produced_type(self) -> TypeInformation | None:
        """The type that all sources declare; None where they declare none, or different ones."""
        types = [source.produced_type() for source in self._given()]
        return types[0] if all(declared == types[0] for declared in types) and self._all_given else None

    def kept_schemas(self) -> dict[str, KeptSchema]:
        """The schemas of all given sources; a place begins with that of the source."""
        return {
            _place(index, inner): kept
            for index, link in enumerate(self._links)
            if link.source is not None
            for inner, kept in link.source.kept_schemas().items()
        }

    def with_kept_schemas(self, kept: Mapping[str, KeptSchema]) -> HybridSource[T]:
        links = []
        for index, link in enumerate(self._links):
            source = link.source
            if source is not None:
                places = {inner: _place(index, inner) for inner in source.kept_schemas()}
                inside = {inner: kept[place] for inner, place in places.items() if place in kept}
                link = replace(link, source=source.with_kept_schemas(inside)) if inside else link
            links.append(link)
        return HybridSource(links, self._default_scheme)

    @property
    def _all_given(self) -> bool:
        return len(self._given()) == len(self._links)

    def produced_schema(self) -> pa.Schema | None:
        """The columns, where all sources give record batches of the same ones."""
        return self._given()[0].produced_schema()

    def estimated_bytes(self) -> int | None:
        """The sum of the sources; None where one does not know."""
        found = [source.estimated_bytes() for source in self._given()]
        known = [size for size in found if size is not None]
        return sum(known) if self._all_given and len(known) == len(found) else None

    def validate(self) -> None:
        """Validates each given source; `made_at` does so for the others.

        Raises InvalidProgramError where two do not give the same columns, or rows both.
        """
        for source in self._given():
            source.validate()
        for index, link in enumerate(self._links):
            if link.source is not None:
                _check_columns(index, link.source.produced_schema(), self.produced_schema())


def _place(index: int, inner: str) -> str:
    """Return the place of a schema in the chain: that of the source, and that in the source."""
    return f"{index}/{inner}" if inner else str(index)


def _check_columns(index: int, schema: pa.Schema | None, first: pa.Schema | None) -> None:
    same = schema is first if schema is None or first is None else schema.equals(first)
    if not same:
        raise InvalidProgramError(
            f"HybridSource: source {index} gives {_shown(schema)}, and source 0 {_shown(first)}; all must give rows, or"
            " batches of the same columns"
        )


def _shown(schema: pa.Schema | None) -> str:
    return "rows" if schema is None else f"columns {schema.to_string(show_field_metadata=False)!r}"


class HybridSourceBuilder(Generic[T]):
    """Collects sources in their order."""

    def __init__(self, links: list[_Link]) -> None:
        self._links = links

    def add_source(
        self,
        source: Source[Any, Any] | SourceFactory,
        boundedness: Boundedness | None = None,
        replay: Replay = Replay.EXACT_POSITIONS,
    ) -> HybridSourceBuilder[T]:
        """Adds the next source, or a function that makes it when the one before has ended.

        The function takes a SourceSwitchContext and must pickle. `boundedness` and `replay` tell of the source that
        it makes, `replay` the weakest that it may have. A given source tells both itself. Raises
        InvalidProgramError behind a source that does not end, and for a function that comes first.
        """
        if self._links and self._links[-1].boundedness is not Boundedness.BOUNDED:
            raise InvalidProgramError(
                f"HybridSource: source {len(self._links) - 1} does not end by itself, so none can come behind it; only"
                " the last source may be unbounded"
            )
        self._links.append(_link(source, boundedness, replay, is_first=not self._links))
        return self

    def build(self) -> HybridSource[T]:
        """The source."""
        return HybridSource(self._links)


def _link(source: object, boundedness: Boundedness | None, replay: Replay, *, is_first: bool) -> _Link:
    if isinstance(source, Source):
        return _Link(source, None, source.boundedness, source.replay)
    if not callable(source) or is_first:
        raise TypeError(f"HybridSource: a Source is expected, not {source!r}")
    if not isinstance(boundedness, Boundedness):
        raise TypeError("HybridSource: give the boundedness of the source that the function makes")
    return _Link(None, source, boundedness, replay)
