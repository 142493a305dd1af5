"""Settings and tokens of Spark's own pages; the pages themselves are in tests/spark/test_stages.py."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re

from yarrow.container.batch.spark.spark_pages import page_settings, signed_token

KEY = bytes(range(32))


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_token_is_signed_and_ends() -> None:
    header, claims, signature = signed_token(KEY, 1_000_000).split(".")
    assert json.loads(decoded(header)) == {"alg": "HS256"}
    assert json.loads(decoded(claims))["exp"] == 1_000_060
    expected = hmac.new(KEY, f"{header}.{claims}".encode(), hashlib.sha256).digest()
    assert hmac.compare_digest(decoded(signature), expected)


def test_pages_change_nothing_and_ask_for_a_token() -> None:
    found = page_settings("key", "")
    assert found["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    off = ("spark.ui.killEnabled", "spark.ui.threadDumpsEnabled", "spark.ui.heapHistogramEnabled")
    assert [found[key] for key in off] == ["false"] * 3


def test_a_program_can_only_hide_more() -> None:
    pattern = page_settings("key", "(?i)price")["spark.redaction.regex"]
    # Python wants flags in front; Java takes them anywhere.
    hidden = re.compile(pattern.replace("|(?i)", "|"))
    for name in (
        "spark.authenticate.secret",
        "my.Token",
        "aws.access.key",
        "db.password",
        "credentials",
        "price",
    ):
        assert hidden.search(name), name
    assert not hidden.search("spark.app.name")
    assert page_settings("key", "")["spark.redaction.regex"] in pattern
