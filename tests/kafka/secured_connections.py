"""The ways to log in at the broker of the tests, as properties that a program sets.

Owner: the test.
"""

from __future__ import annotations

from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.credentials import (
    CLIENT_ID,
    CLIENT_SECRET,
    KEY_PASSWORD,
    SCRAM_PASSWORD,
    USER,
)
from tests.support.kafka.token_endpoint import TokenEndpoint


class SecuredConnections:
    """Properties for the listeners of a cluster."""

    def __init__(self, cluster: KafkaCluster, tokens: TokenEndpoint) -> None:
        self._cluster = cluster
        self._tokens = tokens
        self.files = cluster.credentials

    def named(self, name: str) -> dict[str, str]:
        """The properties of one of the ways to log in that work."""
        files = self.files
        match name:
            case "TLS":
                return self.tls("tls")
            case "TLS with a store in PEM":
                return self.tls("mutual", **store(str(files.store)))
            case "TLS with an encrypted key":
                pair = {
                    "ssl.certificate.location": str(files.certificate),
                    "ssl.key.location": str(files.key),
                }
                return self.tls("mutual", **pair, **{"ssl.key.password": KEY_PASSWORD})
            case "TLS with PKCS12":
                keystore = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(files.keystore)}
                return self.tls("mutual", **keystore, **{"ssl.keystore.password": KEY_PASSWORD})
            case "TLS with texts":
                texts = {
                    "ssl.truststore.certificates": files.authority.read_text("utf-8"),
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": files.certificate.read_text("utf-8"),
                    "ssl.keystore.key": files.key.read_text("utf-8"),
                    "ssl.key.password": KEY_PASSWORD,
                }
                found = self.tls("mutual", **texts)
                del found["ssl.truststore.location"]
                return found
            case "SCRAM-SHA-256" | "SCRAM-SHA-512":
                return self.scram(name)
            case "OAUTHBEARER":
                return self.oauth()
        raise KeyError(name)

    def tls(self, listener: str, **more: str) -> dict[str, str]:
        """TLS that trusts the authority of the tests."""
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.files.authority)}
        servers = {"bootstrap.servers": self._cluster.servers(listener)}
        return {**servers, "security.protocol": "SSL", **trusted, **more}

    def scram(self, mechanism: str = "SCRAM-SHA-512", password: str = SCRAM_PASSWORD) -> dict[str, str]:
        """A user and password over TLS, as programs for Java's clients say it."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        }
        return self.tls("scram") | login

    def oauth(self, secret: str = CLIENT_SECRET) -> dict[str, str]:
        """A token of the endpoint, over TLS."""
        login = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self._tokens.url,
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": secret,
        }
        return self.tls("oauth") | login


def store(path: str) -> dict[str, str]:
    """A client's certificate and key in one file."""
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": path}
