"""The rules of delivery: what a job may claim of a sink's rows, and each refusal with its part and remedy."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import connectors_page
from yarrow.common.execution_modes import CheckpointingMode
from yarrow.common.values.delivery import DeliveryGuarantee, KeptBy, Replay, SinkDelivery
from yarrow.datastream import connectors
from yarrow.datastream.connectors.base import Sink, Source
from yarrow.datastream.program.delivery_rules import (
    Claim,
    ClaimRefusedError,
    RecoveryFacts,
    SinkPart,
    SourcePart,
    claim_of,
    claim_text,
    refuse_untrue_checkpoints,
    weakest_claim,
)

ONCE, TWICE, NEVER = (
    DeliveryGuarantee.EXACTLY_ONCE,
    DeliveryGuarantee.AT_LEAST_ONCE,
    DeliveryGuarantee.NONE,
)
WITH_CHECKPOINTS = RecoveryFacts()
WITHOUT = RecoveryFacts(checkpoints=False, restarts=False)
TRANSACTIONS = {ONCE: KeptBy.TRANSACTION}
STAGING = {ONCE: KeptBy.STAGED_ROWS}
FLUSHING = {TWICE: KeptBy.FLUSH}
UPSERTS = {TWICE: KeptBy.IDEMPOTENT_KEY}


def source(replay: Replay = Replay.EXACT_POSITIONS, *, bounded: bool = False) -> SourcePart:
    return SourcePart(name="orders", replay=replay, bounded=bounded)


def sink(
    kept_by: dict[DeliveryGuarantee, KeptBy],
    *sources: SourcePart,
    asked: DeliveryGuarantee | None = None,
    key: tuple[str, ...] = ("id",),
    scattered_at: str | None = None,
) -> SinkPart:
    delivery = SinkDelivery(connector="Table", asked=asked, kept_by=kept_by, upsert_key=key)
    return SinkPart(name="out", delivery=delivery, sources=sources or (source(),), scattered_at=scattered_at)


def decided(job: RecoveryFacts, part: SinkPart) -> tuple[DeliveryGuarantee, Claim]:
    claim = claim_of(job, part)
    return claim.guarantee, claim.claim


# ---------------------------------------------------------------------- what holds if nothing is asked for


@pytest.mark.parametrize(
    ("kept_by", "expected"),
    [
        (TRANSACTIONS, (ONCE, Claim.EXACTLY_ONCE)),
        (STAGING, (ONCE, Claim.EXACTLY_ONCE)),
        (UPSERTS, (TWICE, Claim.IDEMPOTENT)),
        ({ONCE: KeptBy.IDEMPOTENT_KEY}, (TWICE, Claim.IDEMPOTENT)),
        (FLUSHING, (TWICE, Claim.AT_LEAST_ONCE)),
        ({}, (NEVER, Claim.NONE)),
        ({ONCE: KeptBy.NOT_AT_ALL, TWICE: KeptBy.FLUSH}, (TWICE, Claim.AT_LEAST_ONCE)),
        ({**TRANSACTIONS, **UPSERTS}, (ONCE, Claim.EXACTLY_ONCE)),
    ],
)
def test_without_a_wish_a_sink_keeps_the_strongest_that_it_can(
    kept_by: dict[DeliveryGuarantee, KeptBy], expected: tuple[DeliveryGuarantee, Claim]
) -> None:
    assert decided(WITH_CHECKPOINTS, sink(kept_by)) == expected


@pytest.mark.parametrize(
    ("job", "sources", "expected"),
    [
        (WITH_CHECKPOINTS, [source(Replay.AT_LEAST_ONCE)], (ONCE, Claim.AT_LEAST_ONCE)),
        (WITH_CHECKPOINTS, [source(Replay.BOUNDED_SNAPSHOT, bounded=True)], (ONCE, Claim.AT_LEAST_ONCE)),
        (
            RecoveryFacts(batch=True),
            [source(Replay.BOUNDED_SNAPSHOT, bounded=True)],
            (ONCE, Claim.EXACTLY_ONCE),
        ),
        (
            RecoveryFacts(batch=True),
            [source(Replay.AT_LEAST_ONCE, bounded=True)],
            (ONCE, Claim.AT_LEAST_ONCE),
        ),
        (RecoveryFacts(mode=CheckpointingMode.AT_LEAST_ONCE), [source()], (TWICE, Claim.AT_LEAST_ONCE)),
        (
            RecoveryFacts(mode=CheckpointingMode.AT_LEAST_ONCE),
            [source(), source(Replay.NONE)],
            (TWICE, Claim.NONE),
        ),
        (RecoveryFacts(awaits_last_checkpoint=False), [source(bounded=True)], (TWICE, Claim.AT_LEAST_ONCE)),
        (
            RecoveryFacts(awaits_last_checkpoint=False),
            [source(), source(bounded=True)],
            (ONCE, Claim.EXACTLY_ONCE),
        ),
        (RecoveryFacts(checkpoints=False), [source()], (NEVER, Claim.NONE)),
        (RecoveryFacts(checkpoints=False), [source(bounded=True)], (TWICE, Claim.AT_LEAST_ONCE)),
        (RecoveryFacts(checkpoints=False), [source(Replay.NONE, bounded=True)], (TWICE, Claim.NONE)),
        (WITHOUT, [source()], (NEVER, Claim.NONE)),
        (WITHOUT, [source(bounded=True)], (ONCE, Claim.EXACTLY_ONCE)),
        # Nothing is read a second time.
        (WITHOUT, [source(Replay.NONE, bounded=True)], (ONCE, Claim.EXACTLY_ONCE)),
    ],
)
def test_the_weakest_part_bounds_the_claim(
    job: RecoveryFacts, sources: list[SourcePart], expected: tuple[DeliveryGuarantee, Claim]
) -> None:
    assert decided(job, sink(TRANSACTIONS, *sources)) == expected


def test_no_claim_is_stronger_than_one_of_its_parts() -> None:
    """Every mixture of parts: a stronger source, job or sink never weakens the claim."""
    order = list(Claim)
    jobs = [
        RecoveryFacts(checkpoints=checkpoints, mode=mode, restarts=restarts, awaits_last_checkpoint=waits)
        for checkpoints, mode, restarts, waits in itertools.product(
            (True, False), CheckpointingMode, (True, False), (True, False)
        )
    ]
    for job, bounded in itertools.product(jobs, (True, False)):
        for kept_by in (TRANSACTIONS, STAGING, UPSERTS, FLUSHING, {}):
            claims = [decided(job, sink(kept_by, source(replay, bounded=bounded)))[1] for replay in Replay]
            alone = decided(RecoveryFacts(batch=True), sink(kept_by))[1]
            assert weakest_claim([claims[0], alone]) is claims[0]
            exact, snapshot, twice, none = map(order.index, claims)
            assert exact <= snapshot <= twice <= none
            if job.checkpoints and job.mode is CheckpointingMode.AT_LEAST_ONCE:
                assert exact >= order.index(Claim.AT_LEAST_ONCE)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("job", "part", "expected"),
    [
        (
            WITH_CHECKPOINTS,
            sink(FLUSHING, asked=ONCE),
            r"'out' \(Table\) is asked for EXACTLY_ONCE.* keeps is AT_LEAST_ONCE, rows flushed",
        ),
        (
            WITH_CHECKPOINTS,
            sink({}, asked=TWICE),
            r"asked for AT_LEAST_ONCE.*strongest that it keeps is NONE\. Ask for NONE",
        ),
        (
            WITH_CHECKPOINTS,
            sink(UPSERTS, asked=ONCE),
            r"Idempotent by key is not exactly once.*Ask for AT_LEAST_ONCE",
        ),
        (
            WITH_CHECKPOINTS,
            sink({ONCE: KeptBy.IDEMPOTENT_KEY}, asked=ONCE),
            r"Idempotent by key is not exactly once",
        ),
        (
            WITHOUT,
            sink(TRANSACTIONS, asked=ONCE),
            r"no checkpoints, and source 'orders' does not end.*call enable_checkpointing",
        ),
        (WITHOUT, sink(FLUSHING, asked=TWICE), r"asked for AT_LEAST_ONCE.*no checkpoints"),
        (
            RecoveryFacts(checkpoints=False),
            sink(TRANSACTIONS, source(bounded=True), asked=ONCE),
            r"a restart begins anew.*set restart-strategy.type to none",
        ),
        (
            RecoveryFacts(mode=CheckpointingMode.AT_LEAST_ONCE),
            sink(TRANSACTIONS, asked=ONCE),
            r"g.mode is AT_LEAST_ONCE.*set execution.checkpointing.mode to EXACTLY_ONCE",
        ),
        (
            RecoveryFacts(awaits_last_checkpoint=False),
            sink(TRANSACTIONS, source(bounded=True), asked=ONCE),
            r"checkpoints-after-tasks-finish is false.*set .*after-tasks-finish to true",
        ),
        (
            WITH_CHECKPOINTS,
            sink(TRANSACTIONS, source(Replay.AT_LEAST_ONCE), asked=ONCE),
            r"'orders' gives records at least once.*source with exact positions",
        ),
        (
            WITH_CHECKPOINTS,
            sink(TRANSACTIONS, source(Replay.BOUNDED_SNAPSHOT, bounded=True), asked=ONCE),
            r"bounded snapshot.*execution.runtime-mode to BATCH",
        ),
        (
            RecoveryFacts(mode=CheckpointingMode.AT_LEAST_ONCE),
            sink(FLUSHING, source(Replay.NONE), asked=TWICE),
            r"'orders' cannot read its records again \(it allows 'none'\)",
        ),
        (
            RecoveryFacts(batch=True),
            sink(TRANSACTIONS, source(Replay.NONE, bounded=True), asked=ONCE),
            r"'orders' cannot read its records again",
        ),
        (
            WITH_CHECKPOINTS,
            sink(UPSERTS, key=()),
            r"replaces rows by key, and knows no key: give it the names",
        ),
        (
            WITH_CHECKPOINTS,
            sink(UPSERTS, scattered_at="the REBALANCE from 'a' to 'b'"),
            r"key \(id\), .* lose their order at the REBALANCE from 'a' to 'b'.*key_by",
        ),
        (RecoveryFacts(batch=True), sink(UPSERTS, key=()), r"knows no key"),
    ],
)
def test_a_stronger_claim_than_the_weakest_part_is_refused(
    job: RecoveryFacts, part: SinkPart, expected: str
) -> None:
    with pytest.raises(ClaimRefusedError, match=expected):
        claim_of(job, part)


def test_a_refusal_names_every_part_that_is_too_weak_the_weakest_first() -> None:
    job = RecoveryFacts(mode=CheckpointingMode.AT_LEAST_ONCE)
    with pytest.raises(
        ClaimRefusedError, match=r"orders' cannot read .*; execution.checkpointing.mode is AT"
    ):
        claim_of(job, sink(TRANSACTIONS, source(Replay.NONE), asked=ONCE))


@pytest.mark.parametrize(
    ("job", "part", "expected"),
    [
        (WITH_CHECKPOINTS, sink(TRANSACTIONS, asked=ONCE), (ONCE, Claim.EXACTLY_ONCE)),
        (WITH_CHECKPOINTS, sink(TRANSACTIONS, asked=TWICE), (TWICE, Claim.AT_LEAST_ONCE)),
        (WITH_CHECKPOINTS, sink(TRANSACTIONS, asked=NEVER), (NEVER, Claim.NONE)),
        (WITHOUT, sink(TRANSACTIONS, asked=NEVER), (NEVER, Claim.NONE)),
        (WITHOUT, sink(TRANSACTIONS, source(bounded=True), asked=ONCE), (ONCE, Claim.EXACTLY_ONCE)),
        (
            RecoveryFacts(batch=True, checkpoints=False),
            sink(STAGING, source(bounded=True), asked=ONCE),
            (ONCE, Claim.EXACTLY_ONCE),
        ),
        (WITH_CHECKPOINTS, sink(UPSERTS, asked=TWICE), (TWICE, Claim.IDEMPOTENT)),
        # The order of rows is of no account where rows do not replace each other.
        (
            WITH_CHECKPOINTS,
            sink(TRANSACTIONS, asked=ONCE, key=(), scattered_at="the REBALANCE"),
            (ONCE, Claim.EXACTLY_ONCE),
        ),
    ],
)
def test_a_claim_that_all_parts_keep_is_accepted(
    job: RecoveryFacts, part: SinkPart, expected: tuple[DeliveryGuarantee, Claim]
) -> None:
    assert decided(job, part) == expected


def test_a_loss_that_the_program_accepts_is_shown_and_not_refused() -> None:
    job = RecoveryFacts(accepts_loss=True, mode_is_asked=True)
    claim = claim_of(job, sink(TRANSACTIONS, source(Replay.NONE), asked=ONCE))
    assert (claim.guarantee, claim.claim) == (ONCE, Claim.NONE)
    refuse_untrue_checkpoints(job, [source(Replay.NONE)])


# ---------------------------------------------------------------------- the checkpoint mode is a claim of its own


@pytest.mark.parametrize(
    ("job", "replay", "expected"),
    [
        (
            WITH_CHECKPOINTS,
            Replay.NONE,
            r"'orders' cannot read its records again: .*allow-non-replayable-sources",
        ),
        (
            RecoveryFacts(mode_is_asked=True),
            Replay.AT_LEAST_ONCE,
            r"sets .*mode to EXACTLY_ONCE.*'orders' gives records at least once.*or leave it out",
        ),
        (
            RecoveryFacts(mode_is_asked=True),
            Replay.BOUNDED_SNAPSHOT,
            r"sets execution.checkpointing.mode.*bounded snapshot",
        ),
    ],
)
def test_exactly_once_checkpoints_over_a_weaker_source_are_refused(
    job: RecoveryFacts, replay: Replay, expected: str
) -> None:
    with pytest.raises(ClaimRefusedError, match=expected):
        refuse_untrue_checkpoints(job, [source(), source(replay)])


@pytest.mark.parametrize(
    ("settings", "replay"),
    [
        ({}, Replay.AT_LEAST_ONCE),
        ({}, Replay.BOUNDED_SNAPSHOT),
        ({"mode_is_asked": True}, Replay.EXACT_POSITIONS),
        ({"mode": CheckpointingMode.AT_LEAST_ONCE, "mode_is_asked": True}, Replay.NONE),
        ({"checkpoints": False}, Replay.NONE),
        ({"batch": True, "mode_is_asked": True}, Replay.NONE),
    ],
)
def test_what_is_no_lie_about_checkpoints_is_accepted(settings: dict[str, Any], replay: Replay) -> None:
    refuse_untrue_checkpoints(RecoveryFacts(**settings), [source(replay)])


# ---------------------------------------------------------------------- texts


def test_a_text_names_claim_means_and_what_weakens_it() -> None:
    assert (
        claim_text(claim_of(WITH_CHECKPOINTS, sink(STAGING))) == "exactly once, by staged rows with a marker"
    )
    assert claim_text(claim_of(WITH_CHECKPOINTS, sink(UPSERTS))) == "idempotent by key"
    weakened = claim_of(WITH_CHECKPOINTS, sink(STAGING, source(Replay.AT_LEAST_ONCE)))
    assert claim_text(weakened) == (
        "at least once, by staged rows with a marker (source 'orders' gives records at least once)"
    )
    assert claim_text(claim_of(WITHOUT, sink(STAGING))) == (
        "no claim: rows may be lost (the job takes no checkpoints, and source 'orders' does not end)"
    )
    assert claim_text(claim_of(WITH_CHECKPOINTS, sink(FLUSHING, asked=NEVER))) == "no claim: rows may be lost"


def test_the_page_of_connectors_is_up_to_date() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "connectors.md").read_text(encoding="utf-8")
    assert page == connectors_page.render(), (
        "docs/connectors.md is out of date: run python -m tests.support.pages"
    )


def test_the_page_of_connectors_has_every_source_and_sink_that_is_no_base() -> None:
    """A connector that is new has to be on the page."""
    shown = {type(source) for source in connectors_page.sources().values()}
    folder = Path(connectors.__file__).parent
    for module in pkgutil.walk_packages([str(folder)], f"{connectors.__name__}."):
        found = importlib.import_module(module.name)
        kinds = [
            kind for kind in vars(found).values() if isinstance(kind, type) and kind.__module__ == module.name
        ]
        sources = {kind for kind in kinds if issubclass(kind, Source) and not inspect.isabstract(kind)}
        assert sources <= shown, f"add them to tests/support/pages/connectors_page.py: {sources - shown}"
        sinks = {kind.__name__ for kind in kinds if issubclass(kind, Sink) and not inspect.isabstract(kind)}
        listed = " ".join(connectors_page.sinks())
        assert all(name in listed for name in sinks), f"add them to connectors_page.py: {sinks}"
