"""The soak: which plans it runs, and how one is replayed."""

from __future__ import annotations

import itertools

import pytest

from bench import soak
from tests.support.fault_runs import FaultRun


def test_every_shape_and_place_has_each_seed_of_each_kind() -> None:
    rest = soak.runs(7, soak.KINDS)
    for kind in soak.KINDS:
        pairs = {(shape.name, place) for shape in soak.shapes_of(kind) for place in soak.PLACES[kind]}
        for seed in range(7, 7 + soak.SEEDS_A_CLUSTER):
            of_seed = list(itertools.islice(rest, len(pairs)))
            assert {(run.kind, run.seed) for run in of_seed} == {(kind, seed)}
            assert {(run.shape.name, run.backend) for run in of_seed} == pairs
    after = next(rest)
    assert (after.seed, after.kind) == (7 + soak.SEEDS_A_CLUSTER, "kill")


def test_all_shapes_but_the_loop_run_bounded() -> None:
    names = {kind: {shape.name for shape in soak.shapes_of(kind)} for kind in soak.KINDS}
    assert names["kill"] == names["raise"] == names["bounded"] | {"loop"}
    assert {"count", "windows", "joins", "calls", "pattern"} <= names["bounded"]


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
        (["loop", "local", "1", "bounded"], "no shape 'loop'"),
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
