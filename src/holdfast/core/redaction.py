"""Redaction: values in data that are likely secrets are replaced before a client sees them, or searches them.

A key is secret by its words: `X-Api-Key`, `accessToken` and `session_id` are, `max_tokens`, `tokenizer` and
`token_count` are not. In other values, passwords in URLs are replaced. `configure` adds words and takes some
away. See docs/security.md.
"""

import re
from functools import lru_cache
from typing import Any

import msgspec

HIDDEN = "•••••• hidden"
# Secrets are looked for down to this depth: each level takes two calls of the interpreter's stack.
SEARCHED_DEPTH = 100
SECRET_WORDS = frozenset(
    {
        "password",
        "passwords",
        "passwd",
        "pwd",
        "passphrase",
        "passcode",
        "secret",
        "secrets",
        "token",
        "auth",
        "authorization",
        "authorisation",
        "jwt",
        "bearer",
        "cookie",
        "cookies",
        "credential",
        "credentials",
        "session",
        "apikey",
        "otp",
    }
)
# Words that make a secret together with the word `key` after them.
KEY_WORDS = frozenset(
    {
        "api",
        "access",
        "private",
        "secret",
        "ssh",
        "signing",
        "encryption",
        "auth",
        "account",
    }
)
# A key that ends with one of these tells about a secret, but is none.
ABOUT_WORDS = frozenset(
    {
        "count",
        "limit",
        "type",
        "length",
        "size",
        "usage",
        "method",
        "mode",
        "provider",
        "enabled",
        "required",
        "expires",
    }
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_URL_PASSWORD = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@?#]*:)[^\s/@]+@")
_URL_FIELD = re.compile(r"([?&;]([^=&;\s]+)=)[^&;\s#]+")
_words = set(SECRET_WORDS)


def configure(text: str = "") -> None:
    """Change the secret words of this process: "pin, -session" hides `pin` as well, and shows `session`."""
    words = [word.lower() for word in re.split(r"[,\s]+", text) if word.strip("-")]
    _words.clear()
    _words.update(SECRET_WORDS, (word for word in words if not word.startswith("-")))
    _words.difference_update(word.removeprefix("-") for word in words if word.startswith("-"))
    is_secret.cache_clear()


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether the value of a key is likely a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in ABOUT_WORDS:
        return False
    return any(
        word in _words or (word in KEY_WORDS and following in ("key", "keys"))
        for word, following in zip(words, [*words[1:], ""], strict=True)
    )


def redact(value: Any) -> tuple[Any, int]:
    """A JSON value without its secrets, and how many there were. What is nested very deeply counts as one."""
    hidden: list[None] = []
    return _redact(value, 0, hidden), len(hidden)


def _redact(value: Any, depth: int, hidden: list[None]) -> Any:
    if isinstance(value, str):
        return _redact_url(value, hidden) if "://" in value else value
    if not isinstance(value, dict | list):
        return value
    if depth >= SEARCHED_DEPTH:
        hidden.append(None)
        return HIDDEN
    if isinstance(value, list):
        # Most lists have plain values, perhaps millions: no call for each of these.
        return [
            _redact(one, depth + 1, hidden)
            if type(one) in (dict, list) or (type(one) is str and "://" in one)
            else one
            for one in value
        ]
    found = {}
    for name, inner in value.items():
        if is_secret(str(name)) and inner not in (None, "", [], {}):
            hidden.append(None)
            found[name] = HIDDEN
        else:
            found[name] = _redact(inner, depth + 1, hidden)
    return found


def _redact_url(text: str, hidden: list[None]) -> str:
    """A text without the passwords of URLs in it."""
    shown = _URL_PASSWORD.sub(r"\1••••••@", text)
    shown = _URL_FIELD.sub(lambda match: f"{match[1]}••••••" if is_secret(match[2]) else match[0], shown)
    if shown != text:
        hidden.append(None)
    return shown


def redact_named(name: str, text: str) -> str:
    """A JSON text without its secrets, or without itself if it has the name of one."""
    try:
        value, hidden = redact({name: msgspec.json.decode(text)})
    except (msgspec.DecodeError, RecursionError):
        # As of a number that is too large: no secret can be found, so all of it counts as one.
        return msgspec.json.encode(HIDDEN).decode()
    return msgspec.json.encode(value[name]).decode() if hidden else text


def redact_body(body: Any) -> Any:
    """Data or a result without its secrets; bytes are left as they are."""
    return redact_named("data", body) if isinstance(body, str) else body
