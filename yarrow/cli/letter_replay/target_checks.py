"""Finds the operators that letters go to, and refuses letters that an operator cannot take, before anything runs.

Owner: the main thread; changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle

from yarrow.cli.letter_replay.letter_input import ChosenLetters, PlacedLetter, named
from yarrow.client.errors import CommandError
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.connectors.dead_letters import (
    PARTIAL_VALUE,
    RECORD_BYTES,
    RECORD_SHOWN,
    RECORD_TYPED,
    ROW_OF_WINDOW,
)
from yarrow.datastream.connectors.letter_replay.letter_rows import (
    LetterNotReadError,
    ReadLetter,
    holds_pickle,
    type_text,
)
from yarrow.datastream.connectors.letter_replay.letters_source import LetterTarget
from yarrow.runtime.graph.operator_spec import OperatorSpec, StreamKind
from yarrow.runtime.graph.stream_graph import StreamEdge, StreamNode


class FoundTarget(NamedTuple):
    """An operator of the program, and the letters that it gets."""

    node: StreamNode
    target: LetterTarget
    #: The Arrow schema (IPC bytes) of an input of columns; None = the operator takes rows.
    schema: bytes | None = None
    #: The spec that calls the function of the pattern with matches; None = letters hold none.
    for_matches: OperatorSpec | None = None

    @property
    def is_source(self) -> bool:
        """Whether the letters are those of a source."""
        return self.target.source is not None

    @property
    def in_edges(self) -> Sequence[StreamEdge]:
        """The edges over which the operator gets its own rows of this input; a source has none."""
        number = 0 if self.target.input == ROW_OF_WINDOW else self.target.input
        return [edge for edge in self.node.in_edges if edge.target_input == number]


def found_targets(
    letters: ChosenLetters, operators: Mapping[str, StreamNode], *, trusts_pickles: bool
) -> Sequence[FoundTarget]:
    """Return the operator of each uid and input. Raises CommandError for letters that no operator can take."""
    missing = {uid: number for uid, number in letters.of_uids.items() if uid not in operators}
    if missing:
        raise CommandError(
            f"The program has no operator for the dead letters of {named(missing)}. Give the repaired operator this"
            " uid, or choose letters by --uid."
        )
    by_id = {node.id: node for node in operators.values()}
    found = [
        _found(operators[uid], by_id, LetterTarget(uid, index, trusts_pickles=trusts_pickles), number)
        for (uid, index), number in letters.numbers.items()
    ]
    _check_each(letters, {(each.target.uid, each.target.input): each for each in found})
    return found


def _found(
    node: StreamNode, nodes: Mapping[int, StreamNode], target: LetterTarget, number: int
) -> FoundTarget:
    uid, index = target.uid, target.input
    if node.spec.is_source:
        return FoundTarget(node, LetterTarget(uid, index, source=_source_of(node, uid, number)))
    if target.holds_pairs:
        if not node.spec.takes_pairs:
            raise CommandError(
                f"The {number} dead letters of {uid!r} hold pairs of rows of a join, and {node.name!r} is no join by a"
                " ProcessJoinFunction. Keep the join in the repaired program, or choose other letters by --uid."
            )
        return FoundTarget(node, target._replace(type_spec=node.spec.pair_type))
    if target.holds_matches:
        return _found_for_matches(node, target, number)
    if index == ROW_OF_WINDOW and not node.spec.takes_rows_of_windows:
        raise CommandError(
            f"The {number} dead letters of {uid!r} are rows of windows whose function has failed. If they came again,"
            f" {node.name!r} would make other windows of them. Only tumbling windows and sessions of event time"
            " with their default trigger and without an evictor take them. Choose other letters by --uid."
        )
    if index == PARTIAL_VALUE:
        raise CommandError(
            f"The {number} dead letters of {uid!r} are values of {node.name!r} into which several rows were folded."
            " The rows are gone. Choose other letters by --uid."
        )
    if node.spec.rows_enter_before:
        node = nodes[node.in_edges[0].source]
    found = FoundTarget(node, target)
    if not found.in_edges:
        raise CommandError(
            f"Operator {node.name!r} has no input {index}, for which there are {number} dead letters of {uid!r}."
        )
    edge = found.in_edges[0]
    if edge.stream_kind is not StreamKind.COLUMNAR:
        return found._replace(target=target._replace(type_spec=edge.type_spec))
    schema = _emitted_schema(nodes, nodes[edge.source])
    if schema is None:
        raise CommandError(
            f"Operator {node.name!r} takes columns of an unknown schema, so the {number} dead letters of {uid!r} cannot"
            " be made columns. Declare the schema of the operator before it."
        )
    return found._replace(schema=schema)


def _found_for_matches(node: StreamNode, target: LetterTarget, number: int) -> FoundTarget:
    edge = node.in_edges[0]
    # Rows of columns have no declared type.
    row_type = None if edge.stream_kind is StreamKind.COLUMNAR else edge.type_spec
    spec = node.spec.for_matches_of_letters(target.uid, row_type)
    if spec is None:
        raise CommandError(
            f"The {number} dead letters of {target.uid!r} hold matches of a pattern, and {node.name!r} is no pattern."
            " Keep the pattern in the repaired program, or choose other letters by --uid."
        )
    return FoundTarget(node, target._replace(type_spec=row_type), for_matches=spec)


def _emitted_schema(nodes: Mapping[int, StreamNode], node: StreamNode) -> bytes | None:
    """The Arrow schema (IPC bytes) of the batches that an operator sends; None = not known."""
    if node.spec.keeps_schema and node.in_edges:
        return _emitted_schema(nodes, nodes[node.in_edges[0].source])
    return node.spec.emitted_schema


def _source_of(node: StreamNode, uid: str, number: int) -> bytes:
    reading = node.spec.reads_by
    if reading is not None:
        source = _loaded(reading[0])
        if source.letter_reader() is not None:
            return reading[0]
    raise CommandError(
        f"{node.name!r} cannot read the {number} dead letters of {uid!r} again: only those of this package's formats of"
        " files, and Kafka, can."
    )


def _check_each(letters: ChosenLetters, targets: Mapping[tuple[str, int], FoundTarget]) -> None:
    """Read each row of a letter once, so that a letter of another type is refused before the job begins."""
    readers: dict[tuple[str, int], ReadLetter] = {}
    sources = {
        key: _loaded(each.target.source) for key, each in targets.items() if each.target.source is not None
    }
    problems: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for found in letters.each():
        key = found.letter.operator, found.letter.input
        target = targets[key].target
        if target.source is None and key not in readers:
            readers[key] = target.reader()
        problem = _problem(found, target, readers.get(key), sources.get(key))
        if problem is not None:
            problems[target.uid, problem] += 1
            first.setdefault((target.uid, problem), found.place)
    for (uid, problem), number in problems.items():
        raise CommandError(
            f"{number} dead letters of {uid!r} cannot be replayed: {problem} The first one is {first[uid, problem]}."
        )


def _loaded(source: bytes) -> Source[Any, Any]:
    loaded: Source[Any, Any] = cloudpickle.loads(source)
    return loaded


def _problem(
    found: PlacedLetter, target: LetterTarget, read: ReadLetter | None, source: Source[Any, Any] | None
) -> str | None:
    letter = found.letter
    of_source = letter.encoding == RECORD_BYTES or bool(letter.system)
    if of_source is not (target.source is not None):
        kind = "a source" if of_source else "a function or a sink"
        return f"they come from {kind}, and the operator of this uid is none."
    if source is not None:
        if letter.encoding == RECORD_SHOWN:
            # It tells of a file or a block of which no bytes are there; the job counts it.
            return None
        refusal = source.letter_refusal(letter)
        return None if refusal is None else f"{refusal}."
    if read is None or letter.encoding == RECORD_SHOWN:
        return None
    now = type_text(target.type_spec)
    if letter.encoding == RECORD_TYPED and letter.record_type and letter.record_type != now:
        return (
            f"they hold rows of the type {letter.record_type}, and the repaired operator takes {now or 'undeclared'}"
            " rows. Keep the type of its input."
        )
    if holds_pickle(letter, target.type_spec) and not target.trusts_pickles:
        return (
            "they hold pickles, and whoever can write there could run code by them. Declare the type of the operator's"
            " input, or say --trust-pickles."
        )
    try:
        read(letter)
    except LetterNotReadError as error:
        return f"{error}."
    return None
