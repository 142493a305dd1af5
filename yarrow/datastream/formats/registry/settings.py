"""RegistrySettings: the URL of a schema registry, who asks it and how long, checked while the program is built.

Owner: none (plain values, which travel to the workers). `repr` and errors have no secrets. Must not import the client
library.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from yarrow.runtime.common.errors import InvalidProgramError

_OWNER: Final = "Schema registry"
_REDACTED: Final = "******"
_SECRETS: Final = frozenset(
    {"basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret", "ssl.key.password"}
)
#: Properties of the client that are texts.
_BASIC: Final = "basic.auth.user.info"
_TLS: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password")
_ENDPOINT: Final = "bearer.auth.issuer.endpoint.url"
_OAUTH: Final = (
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.scope",
    _ENDPOINT,
)
_BEARER: Final = ("bearer.auth.token", "bearer.auth.logical.cluster", "bearer.auth.identity.pool.id")
REQUEST_TIMEOUT: Final = "request.timeout.ms"
RETRY_TIMEOUT: Final = "retry.timeout.ms"
NORMALIZE: Final = "normalize.schemas"
_TIMES: Final = {REQUEST_TIMEOUT: 10_000, RETRY_TIMEOUT: 30_000}
#: Who gives credentials, in Java: told by the properties themselves here.
_SOURCES: Final = ("basic.auth.credentials.source", "bearer.auth.credentials.source")
_KNOWN: Final = frozenset({_BASIC, *_TLS, *_OAUTH, *_BEARER, *_TIMES, *_SOURCES, NORMALIZE})
#: Properties of Confluent's serializers -> what stands for them here.
_OF_SERIALIZERS: Final = {
    "auto.register.schemas": 'say registration="lookup" to the schema',
    "use.latest.version": 'say registration="latest" to the schema',
    "subject.name.strategy": "give the schema a SubjectNameStrategy as its subject",
}
_JAVA_PREFIX: Final = "schema.registry."
#: Modules that the client needs, each of a package of the extra.
_LIBRARIES: Final = ("confluent_kafka", "authlib", "cachetools", "attrs")


def require_registry_library() -> None:
    """Raise InvalidProgramError with the command that installs the registry's client, if it is not there."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise InvalidProgramError(
            f"{_OWNER}: its client needs {', '.join(missing)}. Run: pip install 'yarrow[kafka]'. No jar is needed"
        )


class RegistrySettings:
    """A registry and how it is asked; made by `of`."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        #: Without user and password.
        self.url = url
        self._properties = dict(properties)

    @staticmethod
    def of(url: str, properties: Mapping[str, Any] | None = None) -> RegistrySettings:
        """The settings of a program.

        Raises InvalidProgramError for a URL that is none, and for a property that is unknown or half-configured.
        """
        require_registry_library()
        given = {_name_of(key): _text(key, value) for key, value in (properties or {}).items()}
        plain, user_info = _without_user(url)
        if user_info is not None:
            if _BASIC in given:
                raise InvalidProgramError(
                    f"{_OWNER} {plain}: both the URL and {_BASIC} name a user; leave one out"
                )
            given[_BASIC] = user_info
        made = RegistrySettings(plain, given)
        made._check()
        return made

    def _check(self) -> None:
        given = self._properties
        unknown = sorted(given.keys() - _KNOWN)
        for name in unknown:
            if name in _OF_SERIALIZERS:
                raise InvalidProgramError(
                    f"{_OWNER} {self.url}: {name} is no property here; {_OF_SERIALIZERS[name]}"
                )
        if unknown:
            hint = (
                "; stores of Java are not read: give PEM files by ssl.ca.location, ssl.certificate.location and"
                " ssl.key.location"
                if any("store" in name for name in unknown)
                else f"; there are {', '.join(sorted(_KNOWN))}"
            )
            raise InvalidProgramError(f"{_OWNER} {self.url}: {', '.join(unknown)} is not known{hint}")
        if _BASIC in given and ":" not in given[_BASIC]:
            raise InvalidProgramError(f"{_OWNER} {self.url}: {_BASIC} has the form user:password")
        has_oauth = any(name in given for name in _OAUTH)
        kinds = [_BASIC in given, "bearer.auth.token" in given, has_oauth]
        if sum(kinds) > 1:
            raise InvalidProgramError(
                f"{_OWNER} {self.url}: give one of {_BASIC}, bearer.auth.token and bearer.auth.client.id"
            )
        if _ENDPOINT in given and _without_user(given[_ENDPOINT])[1] is not None:
            raise InvalidProgramError(
                f"{_OWNER} {self.url}: {_ENDPOINT} names a user; give bearer.auth.client.id and"
                " bearer.auth.client.secret instead"
            )
        if has_oauth and (missing := [name for name in _OAUTH if name not in given]):
            raise InvalidProgramError(
                f"{_OWNER} {self.url}: a token's client needs {', '.join(missing)}, too"
            )
        if ("ssl.key.location" in given or "ssl.key.password" in given) and (
            "ssl.certificate.location" not in given
        ):
            raise InvalidProgramError(
                f"{_OWNER} {self.url}: a key needs its certificate, too: give ssl.certificate.location"
            )
        if not self.url.startswith("https:") and any(name in given for name in _TLS):
            raise InvalidProgramError(
                f"{_OWNER} {self.url}: properties of TLS need a URL that begins with https:"
            )
        for name in _TIMES:
            _ = self._seconds(name)
        if given.get(NORMALIZE, "false").lower() not in ("true", "false"):
            raise InvalidProgramError(
                f"{_OWNER} {self.url}: property {NORMALIZE} must be true or false, not {given[NORMALIZE]!r}"
            )

    def _seconds(self, name: str) -> float:
        text = self._properties.get(name)
        if text is None:
            return _TIMES[name] / 1000
        if not text.isdigit() or int(text) < 1:
            raise InvalidProgramError(
                f"{_OWNER} {self.url}: property {name} must be milliseconds of 1 or more, not {text!r}"
            )
        return int(text) / 1000

    @property
    def request_seconds(self) -> float:
        """Seconds in which the registry answers one request."""
        return self._seconds(REQUEST_TIMEOUT)

    @property
    def retry_seconds(self) -> float:
        """Seconds after which a request that fails for a time is not sent again."""
        return self._seconds(RETRY_TIMEOUT)

    @property
    def normalizes(self) -> bool:
        """Whether the registry brings schemas of writers into its normal form before it compares them."""
        return self._properties.get(NORMALIZE, "false").lower() == "true"

    @property
    def token(self) -> Mapping[str, str] | None:
        """The fields of a fixed token as the client takes them; None = there is none."""
        token = self._properties.get("bearer.auth.token")
        if token is None:
            return None
        named: dict[str, str] = {name: self._properties[name] for name in _BEARER if name in self._properties}
        named.setdefault("bearer.auth.logical.cluster", "")
        return named

    @cached_property
    def client(self) -> dict[str, Any]:
        """The client's settings, without those of a fixed token."""
        texts = (_BASIC, *_TLS, *_OAUTH)
        chosen: dict[str, Any] = {name: self._properties[name] for name in texts if name in self._properties}
        if "bearer.auth.client.id" in chosen:
            chosen["bearer.auth.credentials.source"] = "OAUTHBEARER"
            logical = {name: self._properties.get(name) for name in _BEARER[1:]}
            # The client asks for the first one, which only registries of Confluent's cloud need.
            chosen["bearer.auth.logical.cluster"] = ""
            chosen |= {name: value for name, value in logical.items() if value is not None}
        # The client's own repetitions know no deadline.
        return {"url": self.url, "timeout": self.request_seconds, "max.retries": 0, **chosen}

    def with_secrets_hidden(self, text: str) -> str:
        """`text`, for example an error of the client, without the values of secrets."""
        secrets = {value for name, value in self._properties.items() if name in _SECRETS}
        secrets |= {self._properties[_BASIC].partition(":")[2]} if _BASIC in self._properties else set()
        for value in sorted(secrets, key=len, reverse=True):
            if value:
                text = text.replace(value, _REDACTED)
        return text

    def __repr__(self) -> str:
        shown = {name: _REDACTED if name in _SECRETS else value for name, value in self._properties.items()}
        return f"RegistrySettings({self.url!r}, {shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self._properties)


def _name_of(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidProgramError(f"{_OWNER}: the name of a property must be a str, not {key!r}")
    return key.removeprefix(_JAVA_PREFIX)


def _text(key: object, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        raise InvalidProgramError(
            f"{_OWNER}: property {key} must be a str, a whole number or a bool, not {type(value).__name__}"
        )
    return str(value)


def _without_user(url: object) -> tuple[str, str | None]:
    """The URL, and the user and password that it had."""
    problem = f"{_OWNER}: a URL is expected that begins with http: or https:, such as http://localhost:8081"
    if not isinstance(url, str):
        raise InvalidProgramError(f"{problem}; not {type(url).__name__}")
    # A text that is no URL may have a password anywhere, so no error shows it.
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidProgramError(problem) from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidProgramError(problem)
    plain = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    if "@" not in parts.netloc:
        return plain, None
    return plain, f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
