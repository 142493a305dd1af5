"""Rows of execute_and_collect: what they are written as, that they come back as they were, whom a client believes."""

from __future__ import annotations

import datetime as dt
import pickle
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.unit.runtime.snapshot.result_classes import (
    Holder,
    Level,
    Opaque,
    Pair,
    Reading,
    Slotted,
    WithProperty,
    WithSlotAndProperty,
)
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row, RowKind
from yarrow.runtime.common.errors import UnprovedRowsError, UnreadableRowsError
from yarrow.runtime.security.result_proof import SAME_PROCESS, ResultProof, result_key
from yarrow.runtime.snapshot.plain_values import dump_plain
from yarrow.runtime.snapshot.result_rows import ResultReader, ResultStream, ResultWriter

KEY = result_key(b"s" * 32)
NOBODY = ResultProof()
TYPED, PLAIN, COLUMNS, PICKLED = b"\x01", b"\x02", b"\x03", b"\x04"
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)


def stream_of(type_info: TypeInformation | None = None, collect_id: str = "c") -> ResultStream:
    return ResultStream("job", collect_id, None if type_info is None else type_info.to_spec())


def written(rows: list[Any], type_info: TypeInformation | None = None) -> bytes:
    return ResultWriter(stream_of(type_info), KEY).dump(rows)


def read(data: bytes, type_info: TypeInformation | None = None, proof: ResultProof = NOBODY) -> list[Any]:
    return ResultReader(stream_of(type_info), proof).load(data)


@pytest.mark.parametrize(
    ("rows", "form"),
    [
        ([1, 2, None], PLAIN),
        ([("a", 1), ("b", 2)], PLAIN),
        ([{"a": [1, 2]}, {"b": []}], PLAIN),
        ([1, "a", (1, [2]), {3: {4}}], PLAIN),
        ([1 << 80, -(1 << 80)], PLAIN),
        ([Level.LOW, Level.HIGH], PLAIN),
        ([("a", MOMENT), ("b", MOMENT)], COLUMNS),
        ([("a", MOMENT.replace(tzinfo=dt.UTC))], COLUMNS),
        ([("a", MOMENT.replace(fold=1)), ("b", MOMENT)], COLUMNS),
        ([("a", MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))))], COLUMNS),
        ([{"at": MOMENT, "price": Decimal("1.50")}], COLUMNS),
        ([Row(1, "a"), Row(2, None)], COLUMNS),
        ([Row(id=1, name="a"), Row(id=2, name="b")], COLUMNS),
        ([Row(1), Row.of_kind(RowKind.DELETE, 2)], PLAIN),
        ([Row(id=1), Row(2)], PLAIN),
        ([Reading("a", 1.5), Reading("b", 2.5, ["x"])], COLUMNS),
        ([Reading("a", 1.5), Slotted(1, "a")], PLAIN),
        ([Slotted(1, "a"), Slotted(2, "b")], COLUMNS),
        ([Pair(1, "a"), Pair(2, "b")], COLUMNS),
        ([("a", Reading("a", 1.5))], COLUMNS),
        ([(), ()], PLAIN),
        ([{}, {}], PLAIN),
    ],
    ids=repr,
)
def test_rows_without_a_type_come_back_as_they_were_and_no_pickle_travels(
    rows: list[Any], form: bytes
) -> None:
    data = written(rows)
    assert data[:1] == form
    for proof in (NOBODY, SAME_PROCESS):
        found = read(data, proof=proof)
        assert found == rows
        assert [*map(type, found)] == [*map(type, rows)]
        assert repr(found) == repr(rows)


@pytest.mark.parametrize(
    ("rows", "type_info"),
    [
        ([1, None, 3], Types.LONG()),
        ([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()])),
        ([Row(id=1, at=MOMENT)], Types.ROW_NAMED(["id", "at"], [Types.LONG(), Types.SQL_TIMESTAMP()])),
        ([{"a": [1]}], Types.MAP(Types.STRING(), Types.LIST(Types.INT()))),
    ],
    ids=["long", "tuple", "row", "map"],
)
def test_rows_of_a_declared_type_travel_by_its_serializer(
    rows: list[Any], type_info: TypeInformation
) -> None:
    data = written(rows, type_info)
    assert data[:1] == TYPED
    assert read(data, type_info) == rows


@pytest.mark.parametrize(
    ("rows", "type_info"),
    [
        (["no number"], Types.LONG()),
        ([("a", "no number")], Types.TUPLE([Types.STRING(), Types.INT()])),
        ([("a", 1)], Types.ROW([Types.STRING(), Types.INT()])),
    ],
)
def test_rows_that_are_not_of_their_declared_type_come_as_they_are(
    rows: list[Any], type_info: TypeInformation
) -> None:
    assert read(written(rows, type_info), type_info) == rows


def test_a_type_that_holds_pickles_is_no_way_to_send_some() -> None:
    type_info = Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()])
    assert written([(1, [2])], type_info)[:1] == PLAIN
    with pytest.raises(UnreadableRowsError, match="no form that this client knows"):
        read(TYPED + pickle.dumps([(1, [2])]), type_info)


def test_pickled_rows_are_read_where_their_writer_is_proved() -> None:
    rows = [Opaque(1), Opaque(2)]
    data = written(rows)
    assert data[:1] == PICKLED
    assert read(data, proof=ResultProof(key=KEY)) == rows
    assert read(data, proof=SAME_PROCESS) == rows


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (("a", Opaque(1)), "[1]"),
        ({"x": [0, Opaque(1)]}, "['x'][1]"),
        (Row(name="a", made=Opaque(1)), "made"),
        (Row("a", Opaque(1)), "f1"),
        (Holder("a", Opaque(1)), "inner"),
        (Pair(1, Opaque(1)), "right"),  # type: ignore[arg-type]
        ([Holder("a", Opaque(1))], "[0].inner"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_refusal_of_pickled_rows_names_the_field(row: Any, place: str) -> None:
    with pytest.raises(UnprovedRowsError) as refused:
        read(written([("a", 1), row]))
    text = str(refused.value)
    assert f"field {place}: a value of type tests.unit.runtime.snapshot.result_classes.Opaque" in text
    assert "security.cluster.directory" in text and "security.ssl.rest.enabled" in text


@pytest.mark.parametrize("change", ["key", "job", "operator", "body"])
def test_a_seal_of_other_rows_is_none(change: str) -> None:
    data = written([Opaque(1)])
    stream, key = stream_of(), KEY
    if change == "key":
        key = result_key(b"t" * 32)
    elif change == "job":
        stream = ResultStream("another", "c")
    elif change == "operator":
        stream = stream_of(collect_id="d")
    else:
        data = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
    with pytest.raises(UnprovedRowsError, match="not of this cluster's secret"):
        ResultReader(stream, ResultProof(key=key)).load(data)


def test_an_empty_key_seals_nothing_for_anybody() -> None:
    data = ResultWriter(stream_of(), b"").dump([Opaque(1)])
    with pytest.raises(UnprovedRowsError, match="no secret of the cluster"):
        read(data)


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def instances(name: str, fields: dict[str, Any], form: str = "object") -> tuple[bytes, bytes]:
    """One instance of a class as a tree and as columns, as no writer would write it."""
    stored = (form, name, [*fields], [None] * len(fields))
    trees = b"\x12" + msgspec.msgpack.encode(([stored], [[23, 0, *fields.values()]]))
    columns = [dump_plain([value]) for value in fields.values()]
    return PLAIN + trees, COLUMNS + msgspec.msgpack.encode((3, None, stored, columns))


def test_whatever_a_false_server_answers_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    bomb = pickle.dumps([Bomb(trace)])
    (tmp_path / "trap.py").write_text(f"open({str(trace)!r}, 'w')\nclass Prey: pass\n")
    (tmp_path / "lazy.py").write_text(
        f"def __getattr__(name):\n    open({str(trace)!r}, 'w')\n    return type(name, (), {{}})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import lazy  # type: ignore[import-not-found]

    assert lazy
    answers = [
        bomb,
        b"",
        *(form + bomb for form in (TYPED, PLAIN, COLUMNS, PICKLED)),
        PICKLED + bytes(32) + bytes(4) + bomb,
        PICKLED + bytes(2),
        TYPED + b"\x01" + bomb,
        PLAIN + b"\x12" + msgspec.msgpack.encode(([], [[29, bomb]])),
        COLUMNS
        + msgspec.msgpack.encode((0, None, None, [b"\x12" + msgspec.msgpack.encode(([], [[29, bomb]]))])),
        COLUMNS + msgspec.msgpack.encode((7, None, None, [])),
        *instances("trap:Prey", {"a": 1}),
        *instances("lazy:Prey", {"a": 1}),
        *instances("builtins:eval", {"a": 1}),
        *instances("subprocess:Popen", {"args": ["touch", str(trace)]}),
        *instances("tests.unit.runtime.snapshot.test_result_rows:Bomb", {"trace": str(trace)}),
        *instances("tests.unit.runtime.snapshot.test_result_rows:pickle", {"trace": str(trace)}),
    ]
    for type_info in (None, Types.STRING(), Types.TUPLE([Types.STRING(), Types.INT()])):
        for answer in answers:
            with pytest.raises(UnreadableRowsError):
                read(answer, type_info)
    assert not trace.exists()
    assert "trap" not in sys.modules


@pytest.mark.parametrize("cls", [WithProperty, WithSlotAndProperty])
def test_a_stored_field_reaches_no_property_of_its_class(cls: type[WithProperty]) -> None:
    calls = WithProperty.calls
    for data in instances(f"{cls.__module__}:{cls.__qualname__}", {"armed": True}):
        (found,) = read(data)
        assert found.__dict__ == {"armed": True}
    assert WithProperty.calls == calls


@pytest.mark.parametrize("name", ["__array_interface__", "__array_struct__", "__dict__"])
def test_a_stored_field_is_no_attribute_that_libraries_believe(name: str) -> None:
    for data in instances(f"{Holder.__module__}:{Holder.__qualname__}", {"name": "a", "inner": 1, name: 1}):
        with pytest.raises(UnreadableRowsError, match=name):
            read(data)


@pytest.mark.parametrize("name", ["__version__", 7])
@pytest.mark.parametrize("others", [[], [1]], ids=["columns", "trees"])
def test_instances_with_such_an_attribute_are_pickled(name: Any, others: list[Any]) -> None:
    holder = Holder("a", 1)  # type: ignore[arg-type]
    vars(holder)[name] = 2
    data = written([holder, *others])
    assert data[:1] == PICKLED
    found = read(data, proof=ResultProof(key=KEY))[0]
    assert vars(found) == vars(holder)


def test_false_offsets_in_arrow_are_not_followed_out_of_the_message() -> None:
    batch = pa.record_batch([pa.array([b"aaaa", b"bbbb"])], names=["field"])
    data = written([batch])
    assert read(data) == [batch]
    offsets = data.index(bytes((0, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0)))
    false = data[: offsets + 8] + (1 << 20).to_bytes(4, "little") + data[offsets + 12 :]
    with pytest.raises(UnreadableRowsError, match="out of bounds"):
        read(false)


def test_classes_that_the_program_does_not_have_are_named() -> None:
    for data in instances("elsewhere.events:Event", {"a": 1}):
        with pytest.raises(UnreadableRowsError, match=r"elsewhere\.events:Event"):
            read(data)
