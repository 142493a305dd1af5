"""Requests made up from the OpenAPI document, valid and not: every answer must be one that it announces.

They are others in each run. A failure names the seed: YARROW_REQUESTS_SEED=SEED repeats its run, and
YARROW_REQUESTS_EXAMPLES=N makes a longer one (`bench/soak --requests N`).
"""

from __future__ import annotations

import os
import secrets
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.unit.am.rest.fakes import JOB, SOURCE, TASK_EXECUTOR, FakeCluster

Operation = APIOperation[Any, Any, Any, Any]
Case = schemathesis.Case[Any]

#: Of the requests of this run, and how many there are for each operation.
SEED = int(os.environ.get("YARROW_REQUESTS_SEED") or secrets.randbits(32))
EXAMPLES = int(os.environ.get("YARROW_REQUESTS_EXAMPLES", "3"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: Ids that exist, so that not every request ends at an unknown id.
KNOWN = {
    "jobid": JOB,
    "vertexid": SOURCE,
    "taskmanagerid": TASK_EXECUTOR,
    "subtaskindex": 0,
    "attempt": 0,
    "filename": "master.log",
}
#: Paths whose purpose is to wait; their own tests make what they wait for happen.
WAITING = {"/jobs/{jobid}/collect/{collectid}", "/jobs/{jobid}/execution-result"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> schemathesis.BaseSchema:
    cluster = FakeCluster(tmp_path_factory.mktemp("cluster"), {"rest.address": "testserver"})
    return schemathesis.openapi.from_asgi("/openapi.json", cluster.app())


def _operations(api: schemathesis.BaseSchema) -> list[Operation]:
    found = [result.ok() for result in api.get_all_operations() if isinstance(result, Ok)]
    return [operation for operation in found if operation.path not in WAITING]


def _can_be_wrong(operation: Operation) -> bool:
    """A request without parameters and with any bytes as its body cannot be made wrongly."""
    raw = operation.definition.raw
    return bool(raw.get("parameters")) or ("requestBody" in raw and operation.path != "/blobs")


def _hold(operation: Operation, mode: GenerationMode) -> None:
    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers_as_announced(case: Case) -> None:
        case.call_and_validate(checks=[*CHECKS, negative_data_rejection])
        known = {name: KNOWN[name] for name in case.path_parameters or {} if name in KNOWN}
        if known:
            case.path_parameters = {**case.path_parameters, **known}
            case.call_and_validate(checks=CHECKS)

    answers_as_announced()


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_answers_are_as_announced(
    api: schemathesis.BaseSchema, mode: GenerationMode, subtests: pytest.Subtests
) -> None:
    operations = _operations(api)
    if mode is GenerationMode.NEGATIVE:
        operations = [operation for operation in operations if _can_be_wrong(operation)]
    assert len(operations) > 40
    print(f"YARROW_REQUESTS_SEED={SEED}")
    for operation in operations:
        with subtests.test(operation.label, YARROW_REQUESTS_SEED=SEED):
            _hold(operation, mode)
