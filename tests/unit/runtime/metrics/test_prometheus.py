"""The page for Prometheus: names, labels, escapes, one family a name."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.am.rest.fakes import JOB, NOW, SOURCE, TASK_EXECUTOR, job_details, task_executor_info
from yarrow.common.job_status import JobStatus
from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.metrics.prometheus_text import prometheus_name, render
from yarrow.runtime.metrics.samples import Sample, of_job, of_task_executors, of_values
from yarrow.runtime.rpc.messages import ExecutionGraphDetails


def test_tasks_and_operators_have_flinks_names_and_labels() -> None:
    details = job_details(JOB, JobStatus.RUNNING)
    families = {family.name: family for family in text_string_to_metric_families(page(details))}
    pressured = families["flink_taskmanager_job_task_backPressuredTimeMsPerSecond"]
    assert pressured.type == "gauge"
    first = pressured.samples[0]
    assert first.value == 800.0
    assert first.labels == {
        "host": "host-1",
        "tm_id": TASK_EXECUTOR,
        "job_id": JOB,
        "job_name": "words",
        "task_id": SOURCE,
        "task_name": "Source: gen -> my map",
        "task_attempt_id": f"graph_{SOURCE}_0_0",
        "task_attempt_num": "0",
        "subtask_index": "0",
    }
    operator = families["flink_taskmanager_job_task_operator_numRecordsIn"].samples[0]
    assert (operator.labels["operator_name"], operator.labels["operator_id"]) == ("my map", "d" * 32)
    assert "flink_taskmanager_job_task_Shuffle_Netty_Input_Buffers_inputQueueLength" in families
    assert families["flink_jobmanager_job_uptime"].samples[0].value == 59_998.0
    heap = families["flink_taskmanager_Status_JVM_Memory_Heap_Used"].samples[0]
    assert heap.labels == {"host": "host-1", "tm_id": TASK_EXECUTOR}


def page(details: ExecutionGraphDetails) -> str:
    samples = [*of_job(details, "master", NOW), *of_task_executors([task_executor_info()])]
    return render(samples, filter_label_values=False)


def test_label_values_lose_characters_unless_told_otherwise() -> None:
    sample = Sample("jobmanager.job", "x", 1.0, {"job_name": 'a "b"\n\\c'})
    assert 'job_name="a__b___c",' in render([sample])
    assert 'job_name="a \\"b\\"\\n\\\\c",' in render([sample], filter_label_values=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (-(2.0**63), "-9.223372036854775808e+18"),
    ],
)
def test_values_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    line = render([Sample("jobmanager", "x", value, {})]).splitlines()[-1]
    name, shown = line.split()
    assert name == "flink_jobmanager_x"
    assert float(shown) == pytest.approx(float(text), nan_ok=True)


def test_a_family_has_one_heading() -> None:
    samples = [Sample("taskmanager", "a.b-c", float(n), {"tm_id": str(n)}) for n in range(3)]
    assert prometheus_name("taskmanager", "a.b-c") == "flink_taskmanager_a_b_c"
    lines = render(samples).splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# HELP flink_taskmanager_a_b_c a.b-c (scope: taskmanager)",
        "# TYPE flink_taskmanager_a_b_c gauge",
    ]
    assert len(lines) == 5


def test_labels_are_those_of_the_sample_however_short_its_variables_live() -> None:
    def samples() -> Iterator[Sample]:
        for number in range(200):
            yield from of_values("taskmanager", {"x": float(number)}, {"tm_id": str(number)})
            gc.collect(0)

    lines = [line for line in render(samples()).splitlines() if not line.startswith("#")]
    assert lines == [f'flink_taskmanager_x{{tm_id="{number}",}} {float(number)}' for number in range(200)]


def test_histograms_are_summaries_with_flinks_quantiles() -> None:
    registry = MetricRegistry(ManualClock())
    distribution = OperatorMetricGroup(registry, ("map",)).distribution("sizes")
    for value in range(1, 101):
        distribution.update(value)
    samples = list(of_values("taskmanager.job.task", registry.values(), {"tm_id": "t"}))
    (family,) = text_string_to_metric_families(render(samples))
    assert (family.name, family.type) == ("flink_taskmanager_job_task_map_sizes", "summary")
    quantiles = {s.labels["quantile"]: s.value for s in family.samples if "quantile" in s.labels}
    assert quantiles == {"0.5": 50, "0.75": 75, "0.95": 95, "0.98": 98, "0.99": 99, "0.999": 100}
    totals = {s.name.rpartition("_")[2]: s.value for s in family.samples if "quantile" not in s.labels}
    assert totals == {"sum": 5050, "count": 100}
    assert all(sample.labels["tm_id"] == "t" for sample in family.samples)


def test_a_part_of_the_fields_makes_no_histogram() -> None:
    values = {"x_p999": 1.0, "x_count": 2.0}
    assert {sample.name: sample.value for sample in of_values("a", values, {})} == values
