"""LoopRounds: a loop ends behind two quiet rounds and never while a record is on its way, held against a simulation."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.container.operators.loop.loop_rounds import LoopRounds


def turn(rounds: LoopRounds) -> None:
    """One round with nobody else in the loop."""
    rounds.returned(*rounds.next())


def test_two_rounds_without_feedback_end_the_loop() -> None:
    rounds = LoopRounds(0, 2)
    due = [rounds.due_ms]  # None: input may come
    rounds.begin(100)
    found = []
    while not rounds.over:
        due.append(rounds.due_ms)
        found.append(rounds.next())
        due.append(rounds.due_ms)  # None: one marker at a time
        rounds.returned(*found[-1])
    assert due == [None, *[100, None] * 3]
    assert [marker.quiet_rounds for marker in found] == [0, 1, 2]
    assert rounds.due_ms is None


def test_feedback_begins_the_count_anew() -> None:
    rounds = LoopRounds(0, 2)
    rounds.begin(0)
    turn(rounds)
    turn(rounds)
    rounds.note_feedback(7)
    assert [rounds.next().quiet_rounds, rounds.over] == [0, False]


def test_feedback_of_another_head_counts_too() -> None:
    rounds = LoopRounds(0, 2)
    rounds.begin(0)
    for _ in range(5):
        marker = rounds.next()
        rounds.returned(marker.number, 0)
        assert not rounds.over


def test_a_wait_counts_from_the_last_feedback() -> None:
    rounds = LoopRounds(50, 2)
    rounds.begin(100)
    assert rounds.due_ms == 150
    rounds.note_feedback(120)
    assert rounds.due_ms == 170


def test_a_marker_of_a_former_round_is_ignored() -> None:
    rounds = LoopRounds(0, 2)
    rounds.begin(0)
    turn(rounds)
    rounds.next()
    rounds.returned(1, 9)
    assert not rounds.over


@settings(max_examples=60, deadline=None)
@given(heads=st.integers(1, 3), seed=st.integers(0, 10_000), shuffles=st.booleans())
def test_no_record_is_left_when_a_loop_ends(heads: int, seed: int, shuffles: bool) -> None:
    """Heads, one body and channels as lists; a record goes round as often as its number says."""
    draw = random.Random(seed)
    rounds = [LoopRounds(0, 2) for _ in range(heads)]
    to_body: list[list[int | tuple[int, int]]] = [[draw.randrange(4)] for _ in range(heads)]
    back: list[list[int | tuple[int, int]]] = [[] for _ in range(heads)]
    markers: dict[int, dict[int, int]] = {}
    for each in rounds:
        each.begin(0)
    for _ in range(4000):
        if all(each.over for each in rounds):
            break
        at = draw.randrange(heads)
        if draw.random() < 0.5 and to_body[at]:
            item = to_body[at].pop(0)
            if isinstance(item, tuple):
                arrived = markers.setdefault(item[0], {})
                arrived[at] = item[1]
                if len(arrived) == heads:
                    for channel in back:
                        channel.append((item[0], min(arrived.values())))
            elif item > 0:
                back[draw.randrange(heads) if shuffles else at].append(item - 1)
        elif back[at]:
            item = back[at].pop(0)
            if isinstance(item, tuple):
                rounds[at].returned(*item)
            else:
                assert not rounds[at].over, "a record came behind the end"
                rounds[at].note_feedback(0)
                to_body[at].append(item)
        elif rounds[at].due_ms is not None:
            marker = rounds[at].next()
            to_body[at].append((marker.number, marker.quiet_rounds))
    assert all(each.over for each in rounds)
    assert not any(to_body) and not any(back)
