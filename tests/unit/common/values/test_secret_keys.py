"""One table says which keys name secrets; programs and the engine hide the same values, in errors too."""

from __future__ import annotations

import pytest

from yarrow.common.config_options import ConfigOptions
from yarrow.common.configuration import Configuration
from yarrow.common.values.secret_keys import REDACTED, is_secret_key
from yarrow.runtime.config.settings import Settings

#: What Flink hides, and what other systems call their secrets.
SECRET = [
    "security.ssl.key-password", "my.Secret", "fs.azure.account.key.of.me", "metrics.apikey", "x.api-key",
    "x.auth-params", "x.service-key", "github.token", "x.basic-auth", "sasl.jaas.config", "x.http-headers",
    "db.passwd", "key.passphrase", "db.pwd", "aws.credentials", "s3.access-key", "s3.access_key", "ssl.private-key",
]  # fmt: skip
PLAIN = [
    "parallelism.default", "security.delegation.tokens.enabled", "security.delegation.tokens.renewal.retry.backoff",
    "state.checkpoints.dir", "rest.port", "pipeline.name", "keyed.state",
    "yarn.security.kerberos.localized-keytab-path",
]  # fmt: skip


@pytest.mark.parametrize("key", SECRET)
def test_programs_and_engine_hide_the_same_secrets(key: str) -> None:
    assert is_secret_key(key)
    assert Settings({key: "hush"}).to_dict() == {key: REDACTED}
    assert str(Configuration.from_dict({key: "hush"})) == f"{{{key}={REDACTED}}}"


@pytest.mark.parametrize("key", PLAIN)
def test_programs_and_engine_show_the_same_values(key: str) -> None:
    assert not is_secret_key(key)
    assert Settings({key: "shown"}).to_dict() == {key: "shown"}
    assert str(Configuration.from_dict({key: "shown"})) == f"{{{key}=shown}}"


def test_an_error_shows_no_secret() -> None:
    made = Configuration.from_dict({"my.secret.number": "hush", "parameters": "db.password:hush,broken"})
    with pytest.raises(ValueError, match=r"my\.secret\.number: \*+ is no whole number") as refused:
        made.get_integer("my.secret.number", 0)
    assert "hush" not in str(refused.value) and refused.value.__suppress_context__
    for option in (
        ConfigOptions.key("my.secret.number").int_type().no_default_value(),
        ConfigOptions.key("parameters").map_type().no_default_value(),
    ):
        with pytest.raises(ValueError, match=rf"{option.key()}: \*+ is no") as refused:
            made.get(option)
        assert "hush" not in str(refused.value) and refused.value.__suppress_context__
