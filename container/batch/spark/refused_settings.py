"""Settings that Spark refuses: finds the setting by the error of Java, and says what to do.

Owner: any thread. Pure: it reads an error and settings. A wrong setting stays wrong, so no later attempt helps.
Must not take another failure of a start for a refusal: ports, networks and files may be better at the next attempt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from yarrow.common.values.secret_keys import REDACTED, is_secret_key
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.short_text import cut_in_the_middle

#: Java's and Spark's classes for a value that does not fit, without their packages.
_REFUSALS: Final = frozenset(
    {
        "IllegalArgumentException",
        "NumberFormatException",
        "SparkIllegalArgumentException",
        "SparkNumberFormatException",
    }
)
#: Classes that a wrong value may have if the error repeats that value: names of classes and paths are settings, too.
_NO_CLASS: Final = frozenset({"ClassNotFoundException", "SparkClassNotFoundException"})
_REFUSALS_OF_NAMES: Final = _NO_CLASS | {"FileNotFoundException"}
#: How Spark's general error begins where a setting is wrong.
_INVALID: Final = "[INVALID_"
#: A cause that another attempt may not meet, such as a name that is not resolved: Hadoop wraps it in a refusal.
_MAY_PASS: Final = re.compile(r"(Unknown|Connect|Socket|Timeout|Bind|NoRoute)\w*Exception\b")
_CONDITION: Final = re.compile(r"^\[[A-Z_.]+\] |\s*SQLSTATE: \w+$")
_MOST: Final = 500
_OPTIONS_OF_JAVA: Final = "spark.driver.extraJavaOptions"
#: What Java prints of an option that it does not take.
_OPTION_REFUSED: Final = re.compile(r"(?:Unrecognized (?:VM )?option|Conflicting collector)[^|]*[^|\s]")


class SparkSettingError(YarrowError):
    """Spark, or its Java, refuses a setting. The message names it, and no later attempt would take it."""


def refused_setting(
    causes: Sequence[tuple[str, str]], own: Mapping[str, str], *, at_start: bool = False
) -> SparkSettingError | None:
    """The error to tell if Spark refuses one of the settings `own`, None = it has failed for another reason.

    `causes`: class, without its package, and message of Java's error, then those of its causes. `at_start`: nothing
    but settings was given to Spark, so a refusal that names no setting is one of all of them.
    """
    if any(_MAY_PASS.search(kind) or _MAY_PASS.search(said) for kind, said in causes):
        return None
    said_by = [
        (kind, said)
        for kind, said in causes
        if kind in _REFUSALS | _REFUSALS_OF_NAMES or said.startswith(_INVALID)
    ]
    for is_meant in (_names, _repeats):
        for kind, said in said_by:
            keys = [key for key, value in sorted(own.items()) if is_meant(said, key, value)]
            if keys:
                return _error("Spark", keys, own, f"there is no class {said}" if kind in _NO_CLASS else said)
    unnamed = [said for kind, said in said_by if kind not in _REFUSALS_OF_NAMES]
    return _error("Spark", sorted(own), own, unnamed[-1]) if at_start and unnamed and own else None


def refused_option_of_java(output: str, own: Mapping[str, str]) -> SparkSettingError | None:
    """The error to tell if Java has ended because it knows no option of the job; `output` is what it printed."""
    found = _OPTION_REFUSED.search(output)
    if found is None or _OPTIONS_OF_JAVA not in own:
        return None
    return _error("Java", [_OPTIONS_OF_JAVA], own, found[0])


def _names(said: str, key: str, value: str) -> bool:
    """Whether a text has the key of a setting."""
    return re.search(rf"(?<![\w.]){re.escape(key)}(?!\.?\w)", said) is not None


def _repeats(said: str, key: str, value: str) -> bool:
    """Whether a text has the value of a setting. Short words and numbers may be there by chance, unless quoted."""
    if not value:
        return False
    if any(f"{quote}{value}{quote}" in said for quote in "\"'"):
        return True
    is_telling = len(value) > 2 and re.search(r"[^\W\d_]", value) and value.lower() not in ("true", "false")
    return bool(is_telling and re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", said, re.IGNORECASE))


def _error(who: str, keys: Sequence[str], own: Mapping[str, str], said: str) -> SparkSettingError:
    shown = ", ".join(f"{key}={REDACTED if is_secret_key(key) else own[key]}" for key in keys)
    what = f"the setting {shown}" if len(keys) == 1 else f"one of the settings {shown}"
    for key, value in own.items():
        if is_secret_key(key) and value:
            said = said.replace(value, REDACTED)
    words = " ".join(_CONDITION.sub("", line.strip()) for line in said.splitlines()).rstrip(".")
    return SparkSettingError(
        f"{who} refuses {what}: {cut_in_the_middle(words, _MOST)}. Correct it or leave it out, and run the job again"
    )
