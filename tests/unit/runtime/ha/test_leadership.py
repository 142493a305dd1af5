"""Who leads, from what is heard of the session: the pure part of the election."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yarrow.runtime.ha.leadership import Granted, Leadership, Revoked, Standing
from yarrow.runtime.ha.services import epoch_of_token, token_of_epoch

SESSION = 10.0


def leading(at: float = 100.0) -> Leadership:
    leadership = Leadership()
    assert leadership.elected(3, SESSION, sent=at, now=at + 0.1) == Granted(3)
    return leadership


def test_a_grant_lasts_while_the_session_is_heard_of() -> None:
    leadership = leading()
    for moment in (102.0, 107.0, 115.0):
        assert leadership.passed(moment) is None
        leadership.heard(moment, SESSION)
    assert leadership.standing is Standing.LEADING
    assert leadership.may_lead(123.9)


def test_it_ends_before_the_session_can_have_ended() -> None:
    leadership = leading()
    assert leadership.passed(108.9) is None
    decision = leadership.passed(109.0)
    assert isinstance(decision, Revoked) and "session timeout of 10 s" in decision.cause
    assert not leadership.leads
    assert leadership.passed(200.0) is None, "it is told once"


def test_a_suspended_leader_leads_on_and_recovers() -> None:
    leadership = leading()
    assert leadership.suspended() is None
    standings = [leadership.standing]
    assert leadership.leads
    leadership.heard(105.0, SESSION)
    standings.append(leadership.standing)
    assert standings == [Standing.SUSPENDED, Standing.LEADING]
    assert leadership.passed(113.0) is None


def test_a_lost_session_revokes_at_once() -> None:
    leadership = leading()
    assert leadership.lost("the session has expired") == Revoked("the session has expired")
    assert leadership.lost("again") is None


def test_who_slept_does_not_lead_before_it_is_told() -> None:
    leadership = leading()
    assert leadership.leads
    assert not leadership.may_lead(160.0)


def test_an_answer_that_took_as_long_as_a_session_grants_nothing() -> None:
    leadership = Leadership()
    assert isinstance(leadership.elected(1, SESSION, sent=0.0, now=9.5), Revoked)
    assert not leadership.leads


@given(
    st.lists(
        st.tuples(st.sampled_from(["heard", "suspended", "lost", "passed"]), st.floats(0.0, 4.0)), max_size=60
    )
)
def test_nobody_leads_longer_than_a_session_after_the_last_answer(events: list[tuple[str, float]]) -> None:
    now, heard = 0.0, 0.0
    leadership = Leadership()
    leadership.elected(1, SESSION, sent=0.0, now=0.0)
    for event, pause in events:
        now += pause
        leadership.passed(now)
        match event:
            case "heard" if leadership.leads:
                leadership.heard(now, SESSION)
                heard = now
            case "suspended":
                leadership.suspended()
            case "lost":
                leadership.lost("lost")
        assert not leadership.leads or now - heard < SESSION


def test_tokens_begin_with_their_epoch() -> None:
    token = token_of_epoch(7, "ab" * 16)
    assert (len(token), epoch_of_token(token)) == (32, 7)
    assert token != token_of_epoch(7, "cd" * 16)
    assert epoch_of_token("f3" * 16) == 0, "random ones are of no epoch"
    assert epoch_of_token("rm-1") == 0
