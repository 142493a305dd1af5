"""What a task's process tells of its doing: by looks from outside, and before it dies; SIGKILL is in tests/spark."""

from __future__ import annotations

import ctypes
import datetime as dt
import faulthandler
import os
import signal
import sys
import threading
import tracemalloc
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from yarrow.common.types import Row
from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.worker import last_words
from yarrow.container.worker.last_words import LastWords
from yarrow.container.worker.log_origin import as_operator
from yarrow.container.worker.present_call import PresentCall, RunningCode, shown_record

LIMIT = 60.0


def loop_over(function: Callable[[Any], Any]) -> CompiledCode:
    """A generated loop of two operators; the second one calls the function."""
    code = CodeWriter()
    with code.block("for v0 in rows:"):
        with code.owned_by(0, "v0"):
            code.line("v1 = [v0, 'made']")
        with code.owned_by(1, "v1"):
            code.line(f"{code.bind('f', function)}(v1)")
    return code.compile("input_0", "rows")


def run_watched(function: Callable[[Any], Any], rows: Iterable[Any], tell: Callable[..., None]) -> None:
    code, running = loop_over(function), RunningCode()
    running.compiled(code, ["first", "second"])
    with LastWords(running, tell):
        code.function(rows)


def test_a_look_finds_operator_and_record_of_a_waiting_function() -> None:
    seen: list[PresentCall] = []
    looked = threading.Event()

    def wait(record: list[Any]) -> None:
        assert looked.wait(LIMIT)

    def tell(call: PresentCall, how: str) -> None:
        if call.operator_name and not how:
            seen.append(call)
            looked.set()

    run_watched(wait, [7], tell)
    assert seen[0][:2] == ("second", "[7, 'made']")


def last_word(function: Callable[[Any], Any]) -> tuple[str, int]:
    """A forked process runs the function and dies. Returns the words that it told before, and its exit status."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        def tell(call: PresentCall, how: str) -> None:
            if how:
                frames = [line.split()[-1] for line in call.stack.splitlines() if "File" in line]
                os.write(writing, f"{call.operator_name}|{call.record}|{frames[0]}|{how}".encode())

        run_watched(function, range(3), tell)
        os._exit(99)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        text = told.read().decode()
    return text, os.waitpid(child, 0)[1]


def leave(record: list[Any]) -> None:
    if record[0] == 2:
        os._exit(3)


def crash(record: list[Any]) -> None:
    if record[0] == 2:
        ctypes.string_at(0)


def abort(record: list[Any]) -> None:
    if record[0] == 2:
        os.abort()


@pytest.mark.parametrize(
    ("function", "how", "status"),
    [
        (leave, "user code ended the process with os._exit(3)", 3 << 8),
        (crash, "its native code crashed (SIGSEGV: Segmentation fault)", int(signal.SIGSEGV)),
        (abort, "its native code crashed (SIGABRT: Aborted)", int(signal.SIGABRT)),
    ],
)
def test_a_process_that_dies_tells_operator_record_and_end(
    function: Callable[[Any], Any], how: str, status: int
) -> None:
    text, ended = last_word(function)
    assert text == f"second|[2, 'made']|{function.__name__}|{how}"
    assert ended & 0xFF7F == status


def test_a_process_that_a_function_has_forked_tells_nothing() -> None:
    def fork(record: list[Any]) -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    assert last_word(fork) == ("", 99 << 8)


class Guarded:
    """A record whose own text must not be asked for by another thread."""

    def __init__(self) -> None:
        self.name, self.price = "pen", Decimal("1.5")

    def __repr__(self) -> str:
        raise AssertionError("user code was called")


def test_records_are_shown_without_user_code() -> None:
    assert shown_record(Guarded()) == "Guarded(name='pen', price=Decimal('1.5'))"
    assert shown_record((1, [Guarded()])) == "(1, [Guarded(name='pen', price=Decimal('1.5'))])"
    assert shown_record("a\nb") == "'a\\nb'" and len(shown_record("x" * 10_000)) <= 300
    assert shown_record({"k": (1, None)}) == "{'k': (1, None)}"


class Ordered:
    """A key whose methods must not be called by another thread."""

    calls: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.name = "pen"

    def __repr__(self) -> str:
        raise AssertionError("user code was called")

    def __hash__(self) -> int:
        self.calls.append("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        self.calls.append("eq")
        return self is other

    def __lt__(self, other: object) -> bool:
        self.calls.append("lt")
        return True


class Point(NamedTuple):
    x: int
    y: int


def test_keys_of_dicts_and_sets_are_neither_compared_nor_looked_up() -> None:
    keys = Ordered(), Ordered()
    held = dict.fromkeys(keys, 1), set(keys), frozenset(keys)
    Ordered.calls.clear()
    shown = [shown_record(each) for each in held]
    assert Ordered.calls == []
    pen = "Ordered(name='pen')"
    assert shown == [
        f"{{{pen}: 1, {pen}: 1}}",
        f"{{{pen}, {pen}}}",
        f"frozenset({{{pen}, {pen}}})",
    ]
    assert (shown_record({}), shown_record(set()), shown_record(frozenset())) == (
        "{}",
        "set()",
        "frozenset()",
    )
    assert shown_record(set(range(20))) == "{0, 1, 2, 3, 4, 5, 6, 7, ...}"


def test_a_named_tuple_is_shown_with_its_values() -> None:
    assert shown_record(Point(1, 2)) == "Point(1, 2)"


def catch_alarms(record: list[Any]) -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    crash(record)


def test_a_crash_ends_the_process_though_the_program_catches_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "_LAST_SECONDS", 1)
    # A last word that never ends.
    monkeypatch.setattr(LastWords, "dying", lambda *_: threading.Event().wait())
    assert last_word(catch_alarms)[1] & 0x7F == signal.SIGALRM


def _refuse(*_: Any) -> Any:
    raise AssertionError("user code was called")


refuse: Any = _refuse


class Touchy:
    """A record that any look at it by its own methods breaks."""

    def __init__(self) -> None:
        self.name = "pen"

    __getattribute__ = __repr__ = __str__ = __hash__ = __len__ = __iter__ = refuse


class OwnDict(dict[Any, Any]):
    __getattribute__ = __repr__ = __len__ = __iter__ = items = refuse


class OwnList(list[Any]):
    __getattribute__ = __repr__ = __len__ = __iter__ = refuse


class OwnTuple(tuple[Any, ...]):
    __getattribute__ = __repr__ = __len__ = __iter__ = refuse


class OwnSet(set[Any]):
    __getattribute__ = __repr__ = __len__ = __iter__ = refuse


class OwnText(str):
    __getattribute__ = __repr__ = __str__ = __len__ = refuse


class OwnNumber(int):
    __getattribute__ = __repr__ = __str__ = __int__ = refuse


class Slots:
    __slots__ = ("a", "b", "unset")

    def __init__(self) -> None:
        self.a, self.b = 1, Touchy()


class OwnZone(dt.tzinfo):
    __repr__ = utcoffset = dst = tzname = refuse


class OwnDescriptor:
    __dict__ = property(refuse)


@dataclass
class Account:
    name: str
    pin: int = field(default=1234, repr=False)


class Login:
    def __init__(self) -> None:
        self.user, self.password = "ada", "wonderland"

    def __repr__(self) -> str:
        return "a login"


def own_list() -> list[int]:
    """A class of a program with the name of a built-in one."""
    made: list[int] = type("list", (list,), {"__iter__": refuse, "__len__": refuse})()
    list.append(made, 1)
    return made


def test_an_object_that_holds_itself_is_shown_with_little_work() -> None:
    record: dict[int, Any] = {}
    record.update((number, record) for number in range(8))
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, _: calls.update([event]))
    try:
        text = shown_record(record)
    finally:
        sys.setprofile(None)
    assert text.startswith("{0: {0: {0: ") and calls["call"] < 10_000


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_only_the_ends_of_long_bytes_are_made_text(kind: Callable[[bytes], bytes]) -> None:
    record = kind(b"a" * 4_000_000 + b"z")
    tracemalloc.start()
    try:
        text = shown_record(record)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert "b'aaa" in text and text.rstrip(")").endswith("z'") and "..." in text


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: Touchy(), "Touchy(name='pen')"),
        (lambda: OrderedDict(a=1), "OrderedDict({'a': 1})"),
        (lambda: Counter("aab"), "Counter({'a': 2, 'b': 1})"),
        (lambda: OwnDict(a=Touchy()), "OwnDict({'a': Touchy(name='pen')})"),
        (lambda: OwnList([1]), "OwnList([1])"),
        (lambda: own_list(), "list([1])"),
        (lambda: OwnTuple([1, 2]), "OwnTuple(1, 2)"),
        (lambda: OwnSet([1]), "OwnSet({1})"),
        (lambda: OwnSet(), "OwnSet()"),
        (lambda: deque([Touchy()]), "deque([Touchy(name='pen')])"),
        (lambda: OwnText("pen"), "OwnText('pen')"),
        (lambda: OwnNumber(5), "OwnNumber(5)"),
        (lambda: Slots(), "Slots(a=1, b=Touchy(name='pen'))"),
        (lambda: Row(id=1, name=Touchy()), "Row(id=1, name=Touchy(name='pen'))"),
        (lambda: Row(1, "a"), "Row(1, 'a')"),
        (lambda: SimpleNamespace(a=Touchy()), "SimpleNamespace(a=Touchy(name='pen'))"),
        (lambda: ValueError("no", Touchy()), "ValueError('no', Touchy(name='pen'))"),
        (lambda: {"a": Touchy()}.values(), "<dict_values>"),
        (lambda: OwnDescriptor(), "<OwnDescriptor>"),
        (lambda: Account("ada"), "Account(name='ada', pin='******')"),
        (lambda: Login(), "Login(user='ada', password='******')"),
        (lambda: np.array([1, 2]), "ndarray([1, 2])"),
        (lambda: np.int64(7), repr(np.int64(7))),
        (lambda: pa.array([1]).type, "DataType(int64)"),
        (
            lambda: dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
            "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)",
        ),
        (lambda: dt.datetime(2026, 1, 2, tzinfo=OwnZone()), "datetime.datetime(2026, 1, 2, 0, 0)"),
        (lambda: (1,), "(1,)"),
        (lambda: None, "None"),
        (lambda: list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        (lambda: [[[[[[[[]]]]]]]], "[[[[[[[...]]]]]]]"),
    ],
)
def test_a_record_is_shown_with_what_it_has_and_by_none_of_its_methods(
    make: Callable[[], Any], shown: str
) -> None:
    assert shown_record(make()) == shown


def test_a_partial_is_shown_with_its_arguments() -> None:
    assert "args=(Touchy(name='pen'),)" in shown_record(partial(print, Touchy()))


def test_a_frame_of_an_object_is_read_without_its_methods() -> None:
    assert as_operator(Touchy()) is None


def catch_alarms_and_leave(record: list[Any]) -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    leave(record)


def test_an_exit_ends_the_process_though_its_word_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "_LAST_SECONDS", 1)
    monkeypatch.setattr(LastWords, "dying", lambda *_: threading.Event().wait())
    assert last_word(catch_alarms_and_leave)[1] & 0x7F == signal.SIGALRM


@pytest.mark.parametrize("ends", [False, True])
def test_no_look_is_told_behind_the_last_word_or_the_end(ends: bool) -> None:
    """Else a look that began before would replace the word that tells why the process died."""
    told: list[tuple[str, str]] = []
    looking, may_end = threading.Event(), threading.Event()
    own = threading.current_thread()

    def in_flight() -> PresentCall:
        if threading.current_thread() is not own:
            looking.set()
            assert may_end.wait(LIMIT)
        return PresentCall("called", "7", "")

    words = LastWords(RunningCode(), lambda call, how: told.append((call.operator_name, how)), in_flight)
    words.__enter__()
    (look,) = (each for each in threading.enumerate() if each.name == "look at the task" and each.is_alive())
    assert looking.wait(LIMIT)
    if ends:
        words.__exit__()
    else:
        words.dying("it died")
    may_end.set()
    look.join(LIMIT)
    words.__exit__()
    assert told == ([] if ends else [("called", "it died")])


@pytest.mark.parametrize("has_fault_handler", [False, True])
def test_a_handler_of_the_program_stays(monkeypatch: pytest.MonkeyPatch, has_fault_handler: bool) -> None:
    """A Java in the process needs its own for SIGSEGV; other crashes are told nevertheless."""
    library = ctypes.CDLL(None)
    own = last_words._handler_type(lambda number: last_words._exit(42))

    def installed() -> None:
        # As in a process that has run no task yet.
        for number in last_words._CRASHES:
            library.signal(int(number), None)
        if has_fault_handler:
            faulthandler.disable()
            faulthandler.enable()
        else:
            faulthandler.disable()
        library.signal(int(signal.SIGSEGV), own)
        install()

    install = last_words._install
    monkeypatch.setattr(last_words._Present, "handler", None)
    monkeypatch.setattr(last_words, "_install", installed)
    assert last_word(crash) == ("", 42 << 8)
    assert last_word(abort)[0].endswith("(SIGABRT: Aborted)")
