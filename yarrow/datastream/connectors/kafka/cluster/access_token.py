"""AccessToken: the token of OAUTHBEARER for the protocol library, asked of its endpoint as librdkafka does.

Owner: the thread that connects. The grant is that of client credentials (RFC 6749, section 4.4). Neither token nor
secret is in an error or a log line. Must not know Kafka's protocol.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaCredentialsError,
    KafkaUnreachableError,
)
from yarrow.runtime.common.clock import perf_counter

_ANSWER_SECONDS: Final = 10.0
#: A token is asked for again when this share of its life is over, as librdkafka does.
_USED_SHARE: Final = 0.8
#: Seconds that a token lives whose endpoint does not tell.
_USUAL_SECONDS: Final = 60.0
#: Status codes that refuse this client.
_REFUSALS: Final = frozenset({400, 401, 403})
#: From this status code on the endpoint has an error of its own. Two others ask a client to come later.
_OWN_ERRORS: Final = 500
_LATER: Final = frozenset({408, 429})
#: Errors that another attempt would meet again: a certificate that is not trusted, an address that is none.
_FOR_GOOD: Final = (ssl.SSLCertVerificationError, http.client.InvalidURL)
_LOG = logging.getLogger(__name__)


class _RefusesRedirects(urllib.request.HTTPRedirectHandler):
    """A handler for which a redirect is an error: the client's secret would go to another place."""

    def redirect_request(self, *arguments: object) -> None:
        """Return nothing: the status of the redirect is told."""


class AccessToken:
    """A token, renewed before it expires."""

    def __init__(
        self,
        settings: Mapping[str, str],
        seconds: Callable[[], float] = perf_counter,
        answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        """`answer_seconds`: how long the endpoint may leave a question without an answer."""
        self._settings = settings
        self._answer_seconds = answer_seconds
        self._url = settings["sasl.oauthbearer.token.endpoint.url"]
        self._seconds = seconds
        self._value = ""
        self._renewed_at = self._expires_at = float("-inf")

    def extensions(self) -> dict[str, str]:
        """The extensions that go to the broker beside the token."""
        text = self._settings.get("sasl.oauthbearer.extensions", "")
        pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
        return {name.strip(): value for name, _, value in pairs}

    def value(self) -> str:
        """The token. Raises KafkaConnectorError if the endpoint gives none and the last one has expired.

        It is KafkaUnreachableError if the endpoint is away, so that it may give one later.
        """
        asked_at = self._seconds()
        if asked_at >= self._renewed_at:
            try:
                self._value, lives = self._asked()
            except KafkaConnectorError as error:
                if self._seconds() >= self._expires_at:
                    raise
                _LOG.warning("%s. The last token serves until it expires", error)
            else:
                self._renewed_at, self._expires_at = asked_at + _USED_SHARE * lives, asked_at + lives
        return self._value

    def _asked(self) -> tuple[str, float]:
        try:
            with self._opener().open(self._request(), None, self._answer_seconds) as answer:
                found = json.load(answer)
            return str(found["access_token"]), float(found.get("expires_in", _USUAL_SECONDS))
        except urllib.error.HTTPError as error:
            error.close()
            hint = ". Check client id, client secret and scope" if error.code in _REFUSALS else ""
            is_away = error.code >= _OWN_ERRORS or error.code in _LATER
            raise self._failed(f"answered status {error.code}{hint}", is_away=is_away) from None
        except (KeyError, TypeError, ValueError):
            raise self._failed("answered without an access_token in JSON") from None
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            is_away = not isinstance(reason, _FOR_GOOD)
            raise self._failed(f"cannot be reached: {reason}", is_away=is_away) from None

    def _request(self) -> urllib.request.Request:
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if scope := settings.get("sasl.oauthbearer.scope"):
            form["scope"] = scope
        pair = f"{settings['sasl.oauthbearer.client.id']}:{settings['sasl.oauthbearer.client.secret']}"
        headers = {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Accept": "application/json",
        }
        return urllib.request.Request(self._url, urllib.parse.urlencode(form).encode(), headers)

    def _opener(self) -> urllib.request.OpenerDirector:
        return urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._tls()), _RefusesRedirects()
        )

    def _tls(self) -> ssl.SSLContext | None:
        if not self._url.lower().startswith("https:"):
            return None
        settings = self._settings
        try:
            return ssl.create_default_context(
                cafile=settings.get("https.ca.location"), cadata=settings.get("https.ca.pem")
            )
        except (OSError, ssl.SSLError) as error:
            raise KafkaCredentialsError(f"Kafka: https.ca.location cannot be used: {error}") from None

    def _failed(self, why: str, *, is_away: bool = False) -> KafkaConnectorError:
        place = urllib.parse.urlsplit(self._url)
        # User and query of an address may be secrets.
        shown = f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}"
        kind = KafkaUnreachableError if is_away else KafkaConnectorError
        return kind(f"Kafka: sasl.oauthbearer.token.endpoint.url={shown} {why}")


def endpoint_is_away(settings: Mapping[str, str], most_seconds: float) -> bool:
    """Whether the endpoint of tokens does not answer now, or cannot; False if it refuses this client.

    Blocks, at most `most_seconds` for each part of an answer.
    """
    try:
        AccessToken(settings, answer_seconds=min(_ANSWER_SECONDS, most_seconds)).value()
    except KafkaUnreachableError:
        return True
    except KafkaConnectorError:
        return False
    # It has come back meanwhile.
    return True
