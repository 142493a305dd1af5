"""Settings and tokens of Spark's own pages; the pages themselves are in tests/spark/test_stages.py."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from yarrow.container.batch.spark.spark_pages import SparkPages, page_settings, signed_token
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.rpc.batch_gateways import NoSparkPagesError
from yarrow.runtime.rpc.messages import SparkPageRequest

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
        "spark.hadoop.fs.azure.account.key.store.blob.core.windows.net",
        "ssl.key.passphrase",
        "maps.api-key",
        "properties.sasl.jaas.config",
        "price",
    ):
        assert hidden.search(name), name
    assert not hidden.search("spark.app.name")
    assert page_settings("key", "")["spark.redaction.regex"] in pattern


def test_pages_that_start_in_part_are_stopped() -> None:
    session = MagicMock()
    context = session.sparkContext
    context._jsc.sc().conf().clone().get.return_value = ""
    pages = context._jvm.org.apache.spark.ui.SparkUI.create.return_value
    pages.attachAllHandlers.side_effect = Py4JError("no such method")
    with pytest.raises(NoSparkPagesError, match="did not start: no such method"):
        SparkPages(session, ManualClock(), 1000).read(SparkPageRequest(path="/jobs/", base=""))
    pages.bind.assert_called_once()
    pages.stop.assert_called_once()
