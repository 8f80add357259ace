"""Which values are hidden, by the words of their keys."""

import pytest

from holdfast.core import redaction
from holdfast.core.redaction import HIDDEN, is_secret, redact


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "X-Api-Key",
        "auth",
        "jwt",
        "session",
        "session_id",
        "pwd",
        "accessToken",
        "APIKey",
        "api_keys",
        "client-secret",
        "Authorization",
        "dbPassword",
        "refresh.token",
        "private_key",
        "Set-Cookie",
    ],
)
def test_secret_keys_are_hidden(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokenizer",
        "token_count",
        "author",
        "authority",
        "keyboard",
        "sessions_enabled",
        "passport",
        "compassion",
        "key",
        "monkey",
        "secretary",
        "oauthless",
        "auth_method",
        "token_type",
    ],
)
def test_keys_that_only_look_like_secrets_are_shown(name):
    assert not is_secret(name)


def test_passwords_in_urls_are_hidden_under_any_key():
    value = {
        "to": "see postgres://bob:hunter2@db/x",
        "all": ["https://a.test/?q=1&access_token=abc#top", 1],
        "plain": "https://a.test:8080/p?q=1",
    }

    shown, hidden = redact(value)

    assert shown == {
        "to": "see postgres://bob:••••••@db/x",
        "all": ["https://a.test/?q=1&access_token=••••••#top", 1],
        "plain": "https://a.test:8080/p?q=1",
    }
    assert hidden == 2
    assert redact({"auth": {"user": "x"}, "session": ""}) == ({"auth": HIDDEN, "session": ""}, 1)


def test_the_words_can_be_changed():
    """More are hidden; those with a minus are shown."""
    redaction.configure("pin, -session")
    try:
        assert (is_secret("card_pin"), is_secret("session"), is_secret("password")) == (True, False, True)
    finally:
        redaction.configure()
    assert (is_secret("card_pin"), is_secret("session")) == (False, True)
