"""TLS and SASL of Kafka's clients: Java's properties as librdkafka's settings, and what is set by half.

Owner: none (pure functions). Keys and certificates are PEM, or a keystore is PKCS12: OpenSSL reads nothing else. Java's
keystores (JKS) are refused with the command that converts them. Must not read files: they lie where tasks run.

Sources: "Security" of Kafka's documentation, KIP-651 (PEM), CONFIGURATION.md of librdkafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.jaas import jaas_options
from yarrow.datastream.connectors.kafka.cluster.property_names import has_no_effect
from yarrow.runtime.common.errors import InvalidProgramError

_SASL: Final = {
    "https.ca.location": "https.ca.location",
    "https.ca.pem": "https.ca.pem",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": "sasl.username",
    "sasl.password": "sasl.password",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "sasl.kerberos.keytab": "sasl.kerberos.keytab",
    "sasl.kerberos.principal": "sasl.kerberos.principal",
    "sasl.kerberos.kinit.cmd": "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions": "sasl.oauthbearer.extensions",
}

_SSL: Final = {
    "ssl.ca.location": "ssl.ca.location",
    "ssl.ca.pem": "ssl.ca.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.location",
    "ssl.certificate.pem": "ssl.certificate.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.location",
    "ssl.key.pem": "ssl.key.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "ssl.crl.location": "ssl.crl.location",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}
#: Names of TLS and SASL: Java's name -> librdkafka's.
SECURITY: Final = {**_SASL, **_SSL}

_LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
#: Properties that have no setting of their own: these functions read them.
READ_HERE: Final = frozenset(
    {
        "sasl.jaas.config",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        _LOGIN_HANDLER,
    }
)
#: Properties of Java's clients, and what to set in place of them.
OF_JAVA: Final = {
    "ssl.trustmanager.algorithm": "ssl.ca.location, a file in PEM",
    "ssl.keymanager.algorithm": "ssl.certificate.location and ssl.key.location, files in PEM",
    "ssl.provider": "ssl.ca.location: OpenSSL is the provider",
    "sasl.client.callback.handler.class": "sasl.username and sasl.password",
    "sasl.login.class": "sasl.username and sasl.password",
}
#: Java's handler that asks an endpoint for tokens; librdkafka does the same.
_TOKEN_HANDLER: Final = "OAuthBearerLoginCallbackHandler"

#: Options of a JAAS login module: JAAS's name -> librdkafka's.
_JAAS: Final = {
    "username": "sasl.username",
    "password": "sasl.password",
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
KERBEROS: Final = "GSSAPI"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", KERBEROS)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def complete_security(owner: str, properties: Mapping[str, str], settings: dict[str, str]) -> None:
    """Add to `settings` what stores, JAAS and defaults say of TLS and SASL.

    Raises InvalidProgramError naming `owner` and the property that is wrong, set by half or of Java alone.
    """
    settings |= _of_jaas(owner, properties)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise InvalidProgramError(
            f"{owner}: security.protocol must be one of {', '.join(_PROTOCOLS)}, not {protocol!r}"
        )
    for prefix, needed, kind in (("ssl.", "SSL", "TLS"), ("sasl.", "SASL", "SASL")):
        given = next((key for key in properties if key.startswith(prefix) and not has_no_effect(key)), None)
        if given is not None and needed not in protocol:
            raise InvalidProgramError(
                f"{owner}: {given} is set, but security.protocol is {protocol}, which uses no {kind}."
                f" Set security.protocol to {'SSL or SASL_SSL' if kind == 'TLS' else 'SASL_SSL or SASL_PLAINTEXT'}"
            )
    if "SSL" in protocol:
        _add_truststore(owner, properties, settings)
        _add_keystore(owner, properties, settings)
        _check_pair(owner, settings)
    if "SASL" in protocol:
        _check_sasl(owner, properties, settings)


def uses_kerberos(settings: Mapping[str, str]) -> bool:
    """Whether clients with these settings log in by Kerberos."""
    is_sasl = "SASL" in settings.get("security.protocol", "").upper()
    return is_sasl and settings["sasl.mechanism"].upper() == KERBEROS


def _of_jaas(owner: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The options of sasl.jaas.config; those of the properties themselves win."""
    text = properties.get("sasl.jaas.config")
    if text is None:
        return {}
    found = {_JAAS[name]: value for name, value in jaas_options(text).items() if name in _JAAS}
    if not found and "useTicketCache" not in text and "OAuthBearer" not in text:
        # The text itself is a secret.
        raise InvalidProgramError(
            f"{owner}: sasl.jaas.config has no username and password that can be read. Expected is a text like"
            ' \'...PlainLoginModule required username="u" password="p";\'. Or set sasl.username and sasl.password'
        )
    return {key: value for key, value in found.items() if key not in properties}


def _add_truststore(owner: str, properties: Mapping[str, str], settings: dict[str, str]) -> None:
    """Take the certificates of authorities from a truststore of type PEM; no other type can be read."""
    path = properties.get("ssl.truststore.location")
    kind = properties.get("ssl.truststore.type")
    if path is None:
        if kind is not None and "ssl.ca.pem" not in settings:
            raise InvalidProgramError(
                f"{owner}: ssl.truststore.type is set without a truststore. Set ssl.truststore.location too"
            )
        if "ssl.truststore.password" in properties:
            raise InvalidProgramError(
                f"{owner}: ssl.truststore.password is set without ssl.truststore.location. Certificates in PEM need"
                " no password: leave it out"
            )
    else:
        kind = (kind or _kind_by_name(path)).upper()
        if kind != "PEM":
            command = (
                f"openssl pkcs12 -in {path} -nokeys -out ca.pem"
                if kind == "PKCS12"
                else f"keytool -list -rfc -keystore {path} > ca.pem"
            )
            raise InvalidProgramError(
                f"{owner}: ssl.truststore.location={path} is a truststore of type {kind}, which Java alone reads. Write"
                f" its certificates as PEM ({command}), and set ssl.truststore.type=PEM and"
                " ssl.truststore.location=ca.pem without a password"
            )
        if "ssl.truststore.password" in properties:
            raise InvalidProgramError(
                f"{owner}: ssl.truststore.password does not go with ssl.truststore.type=PEM, which needs no password:"
                " leave it out"
            )
        if other := next((key for key in ("ssl.ca.location", "ssl.ca.pem") if key in settings), None):
            raise InvalidProgramError(
                f"{owner}: ssl.truststore.location is set beside {other} (or ssl.truststore.certificates). Set one"
            )
        settings["ssl.ca.location"] = path
    if "ssl.ca.location" in settings and "ssl.ca.pem" in settings:
        raise InvalidProgramError(f"{owner}: ssl.ca.location is set beside certificates as a text. Set one")


def _add_keystore(owner: str, properties: Mapping[str, str], settings: dict[str, str]) -> None:
    """Take the client's certificate and key from a keystore of type PEM; one of type PKCS12 stays as it is."""
    path = settings.get("ssl.keystore.location")
    if path is None:
        for key in ("ssl.keystore.type", "ssl.keystore.password"):
            if key in properties and not (key == "ssl.keystore.type" and "ssl.certificate.pem" in settings):
                raise InvalidProgramError(
                    f"{owner}: {key} is set without a keystore. Set ssl.keystore.location, or leave it out"
                )
        return
    kind = properties.get("ssl.keystore.type", _kind_by_name(path)).upper()
    if kind not in {"PEM", "PKCS12"}:
        raise InvalidProgramError(
            f"{owner}: ssl.keystore.location={path} is a keystore of type {kind}, which Java alone reads. Convert it by"
            f" keytool -importkeystore -srckeystore {path} -destkeystore client.p12 -deststoretype pkcs12, and set"
            " ssl.keystore.type=PKCS12. Or set ssl.certificate.location and ssl.key.location (PEM)"
        )
    for key in ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem"):
        if key in settings:
            raise InvalidProgramError(f"{owner}: ssl.keystore.location is set beside {key}. Set one of them")
    if kind == "PEM":
        if "ssl.keystore.password" in settings:
            raise InvalidProgramError(
                f"{owner}: ssl.keystore.password does not go with ssl.keystore.type=PEM. Set ssl.key.password if the"
                " key is encrypted"
            )
        del settings["ssl.keystore.location"]
        settings |= {"ssl.certificate.location": path, "ssl.key.location": path}
    elif "ssl.key.password" in settings:
        # OpenSSL opens a PKCS12 file and its key by one password.
        settings.setdefault("ssl.keystore.password", settings.pop("ssl.key.password"))


def _kind_by_name(path: str) -> str:
    """The type of a store that the program does not tell: Java's default is JKS."""
    return "PKCS12" if path.lower().endswith((".p12", ".pfx")) else "JKS"


def _check_pair(owner: str, settings: Mapping[str, str]) -> None:
    certificate = next(
        (key for key in ("ssl.certificate.location", "ssl.certificate.pem") if key in settings), None
    )
    key = next((key for key in ("ssl.key.location", "ssl.key.pem") if key in settings), None)
    if (certificate is None) is not (key is None):
        given, missing = (
            (certificate, "ssl.key.location") if key is None else (key, "ssl.certificate.location")
        )
        raise InvalidProgramError(
            f"{owner}: {given} is set without {missing}. A client's certificate needs both certificate and key"
        )
    if "ssl.key.password" in settings and key is None:
        raise InvalidProgramError(f"{owner}: ssl.key.password is set without ssl.key.location")


def _check_sasl(owner: str, properties: Mapping[str, str], settings: dict[str, str]) -> None:
    mechanism = settings.setdefault("sasl.mechanism", KERBEROS).upper()
    if mechanism not in _MECHANISMS:
        raise InvalidProgramError(
            f"{owner}: sasl.mechanism must be one of {', '.join(_MECHANISMS)}, not {mechanism!r}"
        )
    handler = properties.get(_LOGIN_HANDLER)
    if handler is not None and not (mechanism == "OAUTHBEARER" and handler.endswith(_TOKEN_HANDLER)):
        raise InvalidProgramError(
            f"{owner}: property {_LOGIN_HANDLER} names a class of Java, and no Java is used. Set"
            " sasl.oauthbearer.token.endpoint.url with client id and secret"
        )
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        _require(owner, settings, mechanism, "sasl.username", "sasl.password")
    elif mechanism == "OAUTHBEARER":
        settings["sasl.oauthbearer.method"] = "oidc"
        names = ("client.id", "client.secret", "token.endpoint.url")
        _require(owner, settings, mechanism, *(f"sasl.oauthbearer.{name}" for name in names))


def _require(owner: str, settings: Mapping[str, str], mechanism: str, *keys: str) -> None:
    for key in keys:
        if not settings.get(key):
            raise InvalidProgramError(
                f"{owner}: sasl.mechanism {mechanism} needs {' and '.join(keys)}, and {key} is missing. Set it, or"
                " give sasl.jaas.config"
            )
