"""Spark's applications that have outlived the application of ours which has asked for them."""

from __future__ import annotations

from yarrow.client.yarn.abandoned_spark import abandoned_spark_applications
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, ApplicationReport, FinalStatus, YarnState
from yarrow.runtime.yarn.spark_containers import TAG, tags_of

STATES = {"application_1_1": YarnState.RUNNING, "application_1_2": YarnState.KILLED}


def report_of(application_id: str) -> ApplicationReport:
    if application_id not in STATES:
        raise ApplicationNotFoundError(application_id)
    return ApplicationReport(
        application_id=application_id,
        name="a session",
        user="joe",
        queue="root.default",
        state=STATES[application_id],
        final_status=FinalStatus.UNDEFINED,
        diagnostics="",
        tracking_url="",
        tags=frozenset(),
        start_ms=0,
    )


def test_only_those_whose_own_application_has_ended_are_abandoned() -> None:
    living = [
        ("application_1_9", frozenset(tags_of("application_1_2", "a", "driver-9"))),
        ("application_1_5", frozenset(tags_of("application_1_2", "a", "driver-5"))),
        ("application_1_6", frozenset(tags_of("application_1_1", "a", "driver-6"))),
        # Of a standalone cluster, and of another YARN or a forgotten application.
        ("application_1_7", frozenset(tags_of("", "a", "driver-7"))),
        ("application_1_8", frozenset(tags_of("application_7_7", "a", "driver-8"))),
    ]
    asked: list[str] = []

    def with_tag(tag: str) -> list[tuple[str, frozenset[str]]]:
        asked.append(tag)
        return living

    assert abandoned_spark_applications(with_tag, report_of) == ["application_1_5", "application_1_9"]
    assert asked == [TAG]
