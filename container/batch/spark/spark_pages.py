"""SparkPages: Spark's own web pages in Java of a SparkDriver, started when somebody looks at them first.

Owner: any thread calls `read`; one starts the pages. They listen on the loopback address and ask for a token, which
this process alone can make. So no other user of the host reads them, and the master does so through this process. They
begin apart from Spark's session: a job pays nothing for them, and YARN's own filter does not turn the driver away. Must
not let a page change anything.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import secrets
import threading
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from yarrow.common.values.secret_keys import SECRET_NAMES
from yarrow.container.batch.spark.java_errors import first_line
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.rpc.batch_gateways import NoSparkPagesError
from yarrow.runtime.rpc.loopback import LOOPBACK
from yarrow.runtime.rpc.messages import SparkPage, SparkPageRequest

#: Spark's filter that admits requests with a signed token.
_FILTER: Final = "org.apache.spark.ui.JWSFilter"
_KEY_BYTES: Final = 32
#: Seconds for which a token is good.
_TOKEN_SECONDS: Final = 60
#: Seconds for an answer of Spark's server.
_READ_SECONDS: Final = 60.0
_READ_BYTES: Final = 65_536
_LONGEST_CAUSE: Final = 300
#: Status codes by which Spark's filter turns a request away.
_REFUSALS: Final = frozenset({401, 403})
#: What Yarrow hides everywhere; what Spark hides by itself is among it.
_REDACTED: Final = f"(?i){SECRET_NAMES}"
_REDACTION: Final = "spark.redaction.regex"


def page_settings(key: str, own_redaction: str) -> dict[str, str]:
    """The settings of the pages, over those of Spark.

    `key` signs tokens. `own_redaction`: the regular expression of the program for what is hidden; "" = it has none.
    """
    return {
        "spark.ui.filters": _FILTER,
        f"spark.{_FILTER}.param.secretKey": key,
        "spark.ui.port": "0",
        # TLS would guard a connection that does not leave this host.
        "spark.ssl.ui.enabled": "false",
        "spark.ui.reverseProxy": "false",
        "spark.ui.killEnabled": "false",
        "spark.ui.threadDumpsEnabled": "false",
        "spark.ui.heapHistogramEnabled": "false",
        _REDACTION: f"{_REDACTED}|{own_redaction}" if own_redaction else _REDACTED,
    }


def signed_token(key: bytes, now_seconds: int) -> str:
    """A token for one request: JSON Web Signature with HMAC and SHA-256 (RFC 7515)."""
    claims = {"sub": "yarrow", "exp": now_seconds + _TOKEN_SECONDS}
    signed = f"{_text(msgspec.json.encode({'alg': 'HS256'}))}.{_text(msgspec.json.encode(claims))}"
    return f"{signed}.{_text(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SparkPages:
    """The pages of one session."""

    def __init__(self, session: SparkSession, clock: Clock, max_bytes: int) -> None:
        """`max_bytes`: of a page, which has to fit a message."""
        self._session = session
        self._clock = clock
        self._max_bytes = max_bytes
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._starting = threading.Lock()
        self._port = 0

    def read(self, request: SparkPageRequest) -> SparkPage:
        """Asks Spark for a page; blocking. Raises NoSparkPagesError."""
        try:
            with self._starting:
                self._port = self._port or self._start()
        except Py4JError as error:
            raise NoSparkPagesError(
                f"Spark's pages did not start: {first_line(error)[:_LONGEST_CAUSE]}"
            ) from None
        except OSError as error:
            raise NoSparkPagesError(f"Java, which runs Spark, does not answer: {error}") from None
        try:
            return self._ask(request)
        except (OSError, http.client.HTTPException) as error:
            raise NoSparkPagesError(f"Spark's pages do not answer: {error!r}") from None

    def _start(self) -> int:
        """Starts Spark's web server; returns its port."""
        context = self._session.sparkContext
        jvm: Any = context._jvm
        spark = context._jsc.sc()
        conf = spark.conf().clone()
        key = base64.urlsafe_b64encode(self._key).decode()
        for name, value in page_settings(key, conf.get(_REDACTION, "")).items():
            conf.set(name, value)
        nothing = jvm.scala.Option.empty()
        manager = jvm.org.apache.spark.SecurityManager
        # Without a session of their own the pages only show: none of them ends a job.
        pages = jvm.org.apache.spark.ui.SparkUI.create(
            nothing,
            spark.statusStore(),
            conf,
            manager(conf, nothing, getattr(manager, "$lessinit$greater$default$3")()),
            spark.appName(),
            "",
            spark.startTime(),
            spark.version(),
        )
        try:
            pages.setAppId(spark.applicationId())
            sql = self._session._jsparkSession.sharedState().statusStore()
            jvm.org.apache.spark.sql.execution.ui.SQLTab(sql, pages)
            pages.bind()
            pages.attachAllHandlers()
            return int(pages.boundPort())
        except Py4JError:
            # The next request starts another server: this one must not stay behind it.
            with contextlib.suppress(Py4JError):
                pages.stop()
            raise

    def _ask(self, request: SparkPageRequest) -> SparkPage:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=_READ_SECONDS)
        try:
            target = request.path + (f"?{request.query}" if request.query else "")
            connection.request("GET", target, headers=self._headers(request.base))
            # The answer has its own file on the socket: closing the connection does not close that.
            with connection.getresponse() as answer:
                body = self._body(answer)
        finally:
            connection.close()
        if answer.status in _REFUSALS:
            # It reads as if REST had refused the user.
            raise NoSparkPagesError(
                f"Spark's pages refuse the token of their own SparkDriver (status {answer.status}): compare the clocks"
                " of Python and Java on its host"
            )
        if len(body) > self._max_bytes:
            raise NoSparkPagesError(
                f"the page {request.path} of Spark's has more than {self._max_bytes} bytes: ask for less of it"
            )
        return SparkPage(
            status=answer.status,
            media_type=answer.headers.get("content-type", "application/octet-stream"),
            body=body,
            location=answer.headers.get("location", ""),
            policy=answer.headers.get("content-security-policy", ""),
            caching=answer.headers.get("cache-control", ""),
        )

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        """At most one byte more than a page may have. Raises TimeoutError if it comes too slowly."""
        end = self._clock.monotonic() + _READ_SECONDS
        parts: list[bytes] = []
        missing = self._max_bytes + 1
        while missing and (part := answer.read1(min(missing, _READ_BYTES))):
            parts.append(part)
            missing -= len(part)
            if self._clock.monotonic() > end:
                raise TimeoutError(f"the page did not come within {_READ_SECONDS:g} s")
        return b"".join(parts)

    def _headers(self, base: str) -> Mapping[str, str]:
        token = signed_token(self._key, self._clock.epoch_ms() // 1000)
        # The links on a page begin with this path.
        return {"Authorization": f"Bearer {token}", "X-Forwarded-Context": base}
