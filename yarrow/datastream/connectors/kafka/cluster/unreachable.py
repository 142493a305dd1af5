"""Messages about a cluster that does not answer, or that refuses a client.

Owner: none (pure). Must not import the client library.
"""

from __future__ import annotations

from collections.abc import Mapping


def unreachable_text(servers: str, question: str, seconds: float, told: str) -> str:
    """Return the message about brokers that did not answer a question; `told` is what the client says of it."""
    return (
        f"Kafka at {servers} did not answer for {question} within {seconds:g} s: {told}. Check bootstrap.servers,"
        " security.protocol, user and password, and that the broker runs"
    )


def refused_text(servers: str, why: str, settings: Mapping[str, str]) -> str:
    """Return the message about brokers that refuse a client with these settings for good."""
    if "SASL" not in settings.get("security.protocol", "").upper() or "SASL" not in why:
        return f"Kafka at {servers} cannot be used: {why}"
    mechanism = settings["sasl.mechanism"].upper()
    remedy = {
        "OAUTHBEARER": "the client id and secret of sasl.oauthbearer, and what the broker asks of tokens",
        "GSSAPI": "sasl.kerberos.principal and sasl.kerberos.keytab",
    }.get(mechanism, f"user and password for {mechanism}")
    return f"Kafka at {servers} refuses the login: {why}. Check {remedy}"
