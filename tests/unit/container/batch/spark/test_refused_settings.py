"""Refused settings: the error names the setting that Spark refuses. Other failures of a start are no refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from yarrow.container.batch.spark.java_errors import causes_of
from yarrow.container.batch.spark.refused_settings import refused_option_of_java, refused_setting

OWN = {
    "spark.app.name": "report",
    "spark.memory.fraction": "0.6",
    "spark.memory.fraction.more": "1",
    "spark.port.maxRetries": "x",
    "spark.scheduler.mode": "none",
    "spark.serializer": "no.Such",
    "spark.files": "/no/such",
    "spark.executor.instances": "10",
}


def told(*causes: tuple[str, str], at_start: bool = False) -> str:
    error = refused_setting(causes, OWN, at_start=at_start)
    return "" if error is None else str(error)


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (
            "SparkIllegalArgumentException",
            "[INVALID_CONF_VALUE.REQUIREMENT] The value '0.6' in the config \"spark.memory.fraction\" is invalid. It is"
            " small. SQLSTATE: 22022",
            "the setting spark.memory.fraction=0.6: The value '0.6' in the config \"spark.memory.fraction\" is invalid."
            " It is small. Correct",
        ),
        (
            "SparkException",
            "[INVALID_SPARK_CONFIG.X] spark.app.name is not allowed.",
            "spark.app.name=report: ",
        ),
        ("NumberFormatException", 'For input string: "x"', "the setting spark.port.maxRetries=x: For input"),
        (
            "IllegalArgumentException",
            "Unsupported mode: NONE. Use FAIR.",
            "the setting spark.scheduler.mode=none: ",
        ),
        (
            "NumberFormatException",
            "A size is 50b.\nFailed to parse: none",
            "A size is 50b. Failed to parse: none",
        ),
        (
            "ClassNotFoundException",
            "no.Such",
            "the setting spark.serializer=no.Such: there is no class no.Such. ",
        ),
        ("FileNotFoundException", "File file:/no/such does not exist", "the setting spark.files=/no/such: "),
    ],
)
def test_a_refusal_names_the_setting_what_spark_said_and_what_to_do(
    kind: str, said: str, expected: str
) -> None:
    text = told((kind, said))
    assert text.startswith("Spark refuses ")
    assert expected in text
    assert text.endswith(". Correct it or leave it out, and run the job again")


def test_the_cause_that_names_the_setting_counts() -> None:
    outer = ("IllegalArgumentException", "Error while instantiating the session")
    named = (
        "NumberFormatException",
        'Illegal value for config key spark.memory.fraction: For input string: "x"',
    )
    inner = ("NumberFormatException", 'For input string: "x"')
    assert "the setting spark.memory.fraction=0.6: Illegal value" in told(outer, named, inner)


def test_settings_of_the_same_value_are_all_named() -> None:
    error = refused_setting(
        [("NumberFormatException", 'For input string: "x"')], {"spark.a": "x", "spark.b": "x"}
    )
    assert str(error).startswith(
        'Spark refuses one of the settings spark.a=x, spark.b=x: For input string: "x". '
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        # It names a setting, but another process has the port.
        ("BindException", "Service 'sparkDriver' failed after 16 retries! Consider spark.app.name"),
        ("SparkException", "All masters are unresponsive! Giving up spark.app.name"),
        ("IllegalArgumentException", "java.net.UnknownHostException: report"),
        ("FileNotFoundException", "File file:/tmp/spark-events does not exist"),
    ],
)
def test_what_may_pass_is_no_refusal(kind: str, said: str) -> None:
    assert told((kind, said), at_start=True) == ""


def test_a_refusal_without_a_name_is_one_of_all_settings_at_the_start_alone() -> None:
    said = ("IllegalArgumentException", "requirement failed: it is between 10 and 20")
    assert told(said) == ""
    text = told(said, at_start=True)
    assert text.startswith(
        "Spark refuses one of the settings spark.app.name=report, spark.executor.instances=10, "
    )
    assert refused_setting([said], {}, at_start=True) is None


def test_no_secret_is_shown() -> None:
    own = {"spark.authenticate.secret": "of-mine", "spark.app.name": "report"}
    error = refused_setting([("IllegalArgumentException", "of-mine is too short")], own)
    assert "spark.authenticate.secret=******: ****** is too short" in str(error)
    assert "of-mine" not in str(error)


def test_an_option_that_java_does_not_know_is_named() -> None:
    own = {"spark.driver.extraJavaOptions": "-XX:No"}
    output = "Unrecognized VM option 'No' | Error: Could not create the Java Virtual Machine."
    assert (
        "Java refuses the setting spark.driver.extraJavaOptions=-XX:No: Unrecognized VM option 'No'. "
        in str(refused_option_of_java(output, own))
    )
    assert refused_option_of_java("Error: Could not reserve enough space for object heap", own) is None
    assert refused_option_of_java(output, {}) is None


@pytest.mark.parametrize("attribute", ["java_exception", "_origin"])
def test_causes_are_read_from_errors_of_py4j_and_of_pyspark(attribute: str) -> None:
    def java(name: str, message: str | None, cause: Any) -> Any:
        kind = SimpleNamespace(getName=lambda: name)
        return SimpleNamespace(getClass=lambda: kind, getMessage=lambda: message, getCause=lambda: cause)

    error = ValueError("of Python")
    setattr(error, attribute, java("java.lang.A", " a ", java("org.apache.spark.B", None, None)))
    assert causes_of(error) == [("A", "a"), ("B", "")]
    assert causes_of(ValueError("of Python")) == []
