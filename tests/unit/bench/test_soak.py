"""The soak: which plans it runs, and how one is replayed."""

from __future__ import annotations

import itertools

import pytest

from bench import soak
from tests.support.fault_jobs import SHAPES
from tests.support.fault_runs import FaultRun


def test_every_shape_and_place_has_each_seed_of_each_kind() -> None:
    each = len(SHAPES) * len(soak.BACKENDS)
    assert {len(places) for places in soak.PLACES.values()} == {len(soak.BACKENDS)}
    kinds = len(soak.KINDS)
    block = list(itertools.islice(soak.runs(7, soak.KINDS), kinds * each * soak.SEEDS_A_CLUSTER + 1))
    assert {run.seed for run in block[:each]} == {7}
    assert len({(run.shape.name, run.backend) for run in block[:each]}) == each
    for number, kind in enumerate(soak.KINDS):
        of_kind = block[number * each * soak.SEEDS_A_CLUSTER :][: each * soak.SEEDS_A_CLUSTER]
        assert {run.kind for run in of_kind} == {kind}
        assert {run.backend for run in of_kind} == set(soak.PLACES[kind])
    assert (block[-1].seed, block[-1].kind) == (7 + soak.SEEDS_A_CLUSTER, "kill")


def test_what_is_printed_replays() -> None:
    run = next(soak.runs(11, ("raise",)))
    assert soak.replayed(run.command().split()[2:]) == run


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nothing", "hashmap", "1", "kill"], "no shape 'nothing'"),
        (["count", "floppy", "1", "kill"], "no place 'floppy'"),
        (["count", "hashmap", "1", "bounded"], "no place 'hashmap'"),
        (["count", "hashmap", "one", "kill"], "a seed is a number"),
        (["count", "hashmap", "1", "hug"], "no kind 'hug'"),
    ],
)
def test_what_does_not_exist_is_named(words: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        soak.replayed(words)


def test_one_seed_of_the_nemesis_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["--nemesis", "1"])
    assert "an odd one ends by comparing output" in capsys.readouterr().err


@pytest.mark.fault
def test_a_plan_runs_and_a_failure_sets_the_exit_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert soak.main(["--plans", "1", "--kind", "raise"]) == 0
    assert "1 plans, 0 failed" in capsys.readouterr().out

    def wrong(*args: object) -> None:
        raise AssertionError("3 rows are missing")

    monkeypatch.setattr(FaultRun, "execute", wrong)
    assert soak.main(["--replay", "count", "hashmap", "5", "raise"]) == 1
    assert "FAILED: bench/soak --replay count hashmap 5 raise" in capsys.readouterr().out
