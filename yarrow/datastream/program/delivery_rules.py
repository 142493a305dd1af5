"""Rules of delivery: what a whole job may claim about the rows of a sink, and which claims are refused.

Owner: none (pure). A claim is as strong as the weakest of three parts: the sources, the checkpoints and the sink. Must
not look into graphs, connectors or user code. docs/design/0049-what-connectors-claim.md tells why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

import yarrow.runtime.config.options.checkpointing as checkpointing_options
import yarrow.runtime.config.options.restart_strategy as restart_options
from yarrow.common.execution_modes import CheckpointingMode
from yarrow.common.values.delivery import DeliveryGuarantee, KeptBy, Replay, SinkDelivery
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.options.execution import RUNTIME_MODE


class ClaimRefusedError(InvalidProgramError):
    """A program claims more than one of its parts can keep; the message names the part and what would be enough."""


class Claim(StrEnum):
    """What is true of the rows of a sink after a failure, from the strongest to the weakest."""

    #: Readers of the target see each row once.
    EXACTLY_ONCE = "exactly once"
    #: The target ends with the rows of exactly once. Until then, readers may see a key go back to an older row.
    IDEMPOTENT = "idempotent by key"
    #: No row is lost, and rows may be there several times.
    AT_LEAST_ONCE = "at least once"
    #: Rows may be lost.
    NONE = "none"


_STRONGEST_FIRST: Final = tuple(Claim)

#: What a program says if it asks for a guarantee.
_ASKED: Final = {
    DeliveryGuarantee.EXACTLY_ONCE: Claim.EXACTLY_ONCE,
    DeliveryGuarantee.AT_LEAST_ONCE: Claim.AT_LEAST_ONCE,
    DeliveryGuarantee.NONE: Claim.NONE,
}
#: The strongest guarantee of a sink under what checkpoints carry.
_CARRIED: Final = {
    Claim.EXACTLY_ONCE: DeliveryGuarantee.EXACTLY_ONCE,
    Claim.AT_LEAST_ONCE: DeliveryGuarantee.AT_LEAST_ONCE,
    Claim.NONE: DeliveryGuarantee.NONE,
}


def weakest_claim(claims: Iterable[Claim]) -> Claim:
    """Return the weakest of the claims; EXACTLY_ONCE for none."""
    return max(claims, key=_STRONGEST_FIRST.index, default=Claim.EXACTLY_ONCE)


class RecoveryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a job comes back after a failure."""

    #: The job runs in BATCH: tasks run again from their whole input, and sinks are committed at the end, once.
    batch: bool = False
    #: The job takes checkpoints.
    checkpoints: bool = True
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    #: The program sets the mode, instead of leaving it at its default.
    mode_is_asked: bool = False
    #: The job restarts after a failure, or another master takes it up.
    restarts: bool = True
    #: The last rows of an input that ends wait for the checkpoint that covers them.
    awaits_last_checkpoint: bool = True
    #: The program accepts the loss of records that a source does not give again.
    accepts_loss: bool = False


class SourcePart(msgspec.Struct, frozen=True, kw_only=True):
    """A source from which rows reach a sink."""

    name: str
    replay: Replay
    bounded: bool


class SinkPart(msgspec.Struct, frozen=True, kw_only=True):
    """A sink, the sources behind it, and the place where rows of a key lose their order."""

    name: str
    delivery: SinkDelivery
    sources: Sequence[SourcePart]
    #: As "the REBALANCE from 'a' to 'b'"; None = rows of a key keep their order up to the sink.
    scattered_at: str | None = None


class SinkClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What holds of a sink's rows in its job."""

    #: The guarantee that the writer has to keep.
    guarantee: DeliveryGuarantee
    claim: Claim
    means: KeptBy
    #: The parts that make the claim weaker than the sink alone would be.
    because: tuple[str, ...] = ()


class _Bound(msgspec.Struct, frozen=True):
    """The strongest claim that one part allows; `enough` says what would allow more."""

    claim: Claim
    part: str
    enough: str
    #: The program has accepted the loss.
    accepted: bool = False


# ---------------------------------------------------------------------- what the parts allow


def _of_checkpoints(job: RecoveryFacts, sources: Sequence[SourcePart]) -> _Bound | None:
    """Return the bound that restarts set, whatever the sources give again; None = they set none."""
    if job.batch:
        return None
    endless = next((source for source in sources if not source.bounded), None)
    if not job.checkpoints:
        return _without_checkpoints(job, endless)
    if job.mode is CheckpointingMode.AT_LEAST_ONCE:
        return _Bound(
            Claim.AT_LEAST_ONCE,
            f"{checkpointing_options.MODE.key} is AT_LEAST_ONCE",
            f"set {checkpointing_options.MODE.key} to EXACTLY_ONCE",
        )
    if endless is None and not job.awaits_last_checkpoint:
        key = checkpointing_options.AFTER_TASKS_FINISH.key
        return _Bound(
            Claim.AT_LEAST_ONCE,
            f"{key} is false, so rows behind the last checkpoint are committed early, and written again by a restart",
            f"set {key} to true",
        )
    return None


def _without_checkpoints(job: RecoveryFacts, endless: SourcePart | None) -> _Bound | None:
    enable = f"call enable_checkpointing (it sets {checkpointing_options.INTERVAL.key})"
    if endless is not None:
        return _Bound(
            Claim.NONE,
            f"the job takes no checkpoints, and source '{endless.name}' does not end",
            enable,
        )
    if not job.restarts:
        # The job finishes with each row once, or it fails and begins no second attempt.
        return None
    return _Bound(
        Claim.AT_LEAST_ONCE,
        "the job takes no checkpoints, so a restart begins anew, behind the rows of subtasks that had ended",
        f"{enable}, or set {restart_options.TYPE.key} to none without high availability",
    )


def _of_source(job: RecoveryFacts, source: SourcePart) -> _Bound | None:
    if source.replay is Replay.EXACT_POSITIONS:
        return None
    if source.replay is Replay.BOUNDED_SNAPSHOT:
        if job.batch:
            return None
        return _Bound(
            Claim.AT_LEAST_ONCE,
            f"source '{source.name}' is a bounded snapshot, of which a split that was begun is read again as a whole",
            f"set {RUNTIME_MODE.key} to BATCH, or read from a source with exact positions",
        )
    if source.replay is Replay.AT_LEAST_ONCE:
        return _Bound(
            Claim.AT_LEAST_ONCE,
            f"source '{source.name}' gives records at least once",
            "read from a source with exact positions",
        )
    return _Bound(
        Claim.NONE,
        f"source '{source.name}' cannot read its records again",
        "read from a source that can (a SourceFunction: mix in CheckpointedFunction)",
        accepted=job.accepts_loss,
    )


def _bounds(job: RecoveryFacts, sources: Sequence[SourcePart]) -> Iterator[_Bound]:
    """Yield what checkpoints and sources do not allow, checkpoints first."""
    checkpoints = _of_checkpoints(job, sources)
    if checkpoints is not None:
        yield checkpoints
    ends_once = not job.batch and not job.checkpoints and not job.restarts and checkpoints is None
    if not ends_once:
        for source in sources:
            bound = _of_source(job, source)
            if bound is not None:
                yield bound


# ---------------------------------------------------------------------- decisions


def claim_of(job: RecoveryFacts, sink: SinkPart) -> SinkClaim:
    """Return the guarantee that a sink keeps, and what is true of its rows.

    Raises ClaimRefusedError if the program asks for a guarantee that the sink, the checkpoints or a source cannot keep.
    Raises it also for rows that replace each other by key without a key, or without an order of the rows of a key.
    """
    delivery = sink.delivery
    shown = f"sink '{sink.name}' ({delivery.connector})"
    if delivery.asked is not None and not delivery.keeps(delivery.asked):
        raise ClaimRefusedError(_not_kept(shown, delivery, delivery.asked))
    bounds = list(_bounds(job, sink.sources))
    if delivery.asked is None:
        checkpoints = _of_checkpoints(job, sink.sources)
        carried = Claim.EXACTLY_ONCE if checkpoints is None else checkpoints.claim
        guarantee = delivery.strongest(_CARRIED[carried])
    else:
        guarantee = delivery.asked
        _refuse_stronger(shown, guarantee, bounds)
    means = delivery.means(guarantee)
    if means is KeptBy.IDEMPOTENT_KEY:
        _check_upserts(shown, sink)
    alone = _alone(guarantee, means)
    claim = weakest_claim([alone, *(bound.claim for bound in bounds)])
    strongest = delivery.strongest()
    could = alone if delivery.asked is not None else _alone(strongest, delivery.means(strongest))
    weakening = (bound.part for bound in bounds if bound.claim is claim is not could)
    because = tuple(dict.fromkeys(weakening))
    return SinkClaim(guarantee=guarantee, claim=claim, means=means, because=because)


def _alone(guarantee: DeliveryGuarantee, means: KeptBy) -> Claim:
    """Return what the sink alone makes true."""
    if guarantee is DeliveryGuarantee.AT_LEAST_ONCE and means is KeptBy.IDEMPOTENT_KEY:
        return Claim.IDEMPOTENT
    return _ASKED[guarantee]


def _not_kept(shown: str, delivery: SinkDelivery, asked: DeliveryGuarantee) -> str:
    strongest = delivery.strongest()
    kept = delivery.means(strongest)
    how = "" if kept is KeptBy.NOT_AT_ALL else f", {kept}"
    told = (
        " Idempotent by key is not exactly once: after a failure readers may see a key go back to an older row."
        if kept is KeptBy.IDEMPOTENT_KEY
        else ""
    )
    return (
        f"The {shown} is asked for {asked.name} and does not keep it. The strongest that it keeps is"
        f" {strongest.name}{how}.{told} Ask for {strongest.name}, or leave delivery_guarantee unset. Or take a"
        f" sink that keeps {asked.name}."
    )


def _refuse_stronger(shown: str, asked: DeliveryGuarantee, bounds: Sequence[_Bound]) -> None:
    wanted = _STRONGEST_FIRST.index(_ASKED[asked])
    weaker = [each for each in bounds if not each.accepted and _STRONGEST_FIRST.index(each.claim) > wanted]
    if not weaker:
        return
    weaker.sort(key=lambda each: _STRONGEST_FIRST.index(each.claim), reverse=True)
    parts = "; ".join(f"{each.part} (it allows '{each.claim}')" for each in weaker)
    enough = "; ".join(dict.fromkeys(each.enough for each in weaker))
    raise ClaimRefusedError(
        f"The {shown} is asked for {asked.name}, and that would be untrue: {parts}. What would be enough: {enough}. Or"
        " leave delivery_guarantee unset, and the sink keeps the strongest that holds."
    )


def _check_upserts(shown: str, sink: SinkPart) -> None:
    if not sink.delivery.upsert_key:
        raise ClaimRefusedError(
            f"The {shown} replaces rows by key, and knows no key: give it the names of the key's fields."
        )
    if sink.scattered_at is not None:
        key = ", ".join(sink.delivery.upsert_key)
        raise ClaimRefusedError(
            f"The {shown} replaces rows by key ({key}), and rows of one key lose their order at {sink.scattered_at}."
            " An older row could replace a newer one. Compute the rows behind this place by key (key_by and a keyed"
            " operator). Or give both operators the same parallelism, and take the rebalance out."
        )


def refuse_untrue_checkpoints(job: RecoveryFacts, sources: Iterable[SourcePart]) -> None:
    """Refuse exactly-once checkpoints over sources that do not give their records again as often.

    A source that gives nothing again is refused under the default mode too, unless the program accepts the loss. One
    that gives records twice is refused where the program asks for EXACTLY_ONCE itself. Raises ClaimRefusedError.
    """
    if job.batch or not job.checkpoints or job.mode is not CheckpointingMode.EXACTLY_ONCE:
        return
    bounds = {source.name: bound for source in sources if (bound := _of_source(job, source)) is not None}
    lost = sorted(name for name, bound in bounds.items() if bound.claim is Claim.NONE and not bound.accepted)
    mode, allow = checkpointing_options.MODE.key, checkpointing_options.ALLOW_NON_REPLAYABLE_SOURCES.key
    if lost:
        listed = ", ".join(f"'{name}'" for name in lost)
        raise ClaimRefusedError(
            f"The program asks for exactly-once checkpoints, and {listed} cannot read its records again:"
            " records between the last checkpoint and a failure would be lost. Read from a source that can (a"
            f" SourceFunction: mix in CheckpointedFunction), set {mode} to AT_LEAST_ONCE, or accept the loss by"
            f" {allow}: true."
        )
    twice = [bound for bound in bounds.values() if bound.claim is Claim.AT_LEAST_ONCE]
    if twice and job.mode_is_asked:
        parts = "; ".join(bound.part for bound in twice)
        enough = "; ".join(dict.fromkeys(bound.enough for bound in twice))
        raise ClaimRefusedError(
            f"The program sets {mode} to EXACTLY_ONCE, and state would count records twice after a failure: {parts}."
            f" What would be enough: {enough}. Or set the mode to AT_LEAST_ONCE, or leave it out."
        )


# ---------------------------------------------------------------------- texts


def replay_text(replay: Replay) -> str:
    """Return what plan, REST and documentation say of a source."""
    return f"replay: {replay}"


def claim_text(claim: SinkClaim) -> str:
    """Return what plan, REST, log and documentation say of a sink."""
    if claim.claim is Claim.NONE:
        text = "no claim: rows may be lost"
    elif claim.claim is Claim.IDEMPOTENT:
        text = str(claim.claim)
    else:
        text = f"{claim.claim}, by {claim.means}"
    return f"{text} ({'; '.join(claim.because)})" if claim.because else text
