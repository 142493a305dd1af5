"""Signals that end a program: the first one in order, the second one at once, and handlers of the program stay."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from yarrow.client.interrupts import end_in_order_by_signals

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", _NUMBERS)
def test_the_first_signal_ends_the_program_in_order_and_the_second_one_at_once(
    number: signal.Signals,
) -> None:
    end_in_order_by_signals()
    with pytest.raises(SystemExit) as raised:
        signal.raise_signal(number)
    assert raised.value.code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_handlers_of_the_program_stay() -> None:
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_in_order_by_signals()
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)
    assert came == [signal.SIGTERM]


def test_other_threads_change_no_handler() -> None:
    thread = threading.Thread(target=end_in_order_by_signals)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
