"""Addresses of stores without their passwords, for display and for storing."""

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit, urlunsplit

# Secret parameters in the query of an address.
_SECRET = re.compile(r"pass|secret|token|credential", re.IGNORECASE)


def addresses(url: str) -> list[str]:
    """The addresses of the shards, if there are several; the name of a file may contain spaces too."""
    parts = url.split()
    return parts if len(parts) > 1 and all("://" in part for part in parts) else [url]


def shown_url(url: str) -> str:
    """An address for display, without its password."""
    if len(several := addresses(url)) > 1:
        return " ".join(map(shown_url, several))
    head, mark, tail = url.partition("://")
    userinfo, at, where = tail.rpartition("@")
    shown = f"{head}{mark}{userinfo.partition(':')[0]}{at}{where}" if mark else url
    return re.sub(rf"([?&][^=&]*(?:{_SECRET.pattern})[^=&]*=)[^&]*", r"\1…", shown, flags=re.IGNORECASE)


def bare_url(url: str) -> str:
    """An address that can be stored: complete, except for its password.

    The path of a file is made absolute, so that it does not depend on the current folder.
    """
    return " ".join(map(_bare, addresses(url)))


def _bare(url: str) -> str:
    head, mark, tail = url.partition("://")
    if not mark:
        return str(Path(url).resolve())
    userinfo, at, where = ("", "", tail) if head == "sqlite" else _split_user(tail)
    place, question, query = where.partition("?")
    if head == "sqlite" and place.startswith("/"):
        place = "/" + str(Path(place.removeprefix("/")).resolve())
    kept = "&".join(pair for pair in query.split("&") if pair and not _SECRET.search(pair.partition("=")[0]))
    return f"{head}{mark}{userinfo.partition(':')[0]}{at}{place}{question if kept else ''}{kept}"


def _split_user(tail: str) -> tuple[str, str, str]:
    """Split off the user. An @ in the query ends none; a ? in a password begins no query."""
    server, slash, path = tail.partition("/")
    if "@" not in server:
        server, slash, path = tail.partition("?")
    userinfo, at, where = server.rpartition("@")
    return userinfo, at, where + slash + path


def with_password(address: str, own: str) -> str:
    """An address with the password of another one, if both have the same user and server.

    So a password is never sent to another server. Several addresses are compared one by one.
    """
    return " ".join(_with_any(one, addresses(own)) for one in addresses(address))


def _with_any(address: str, own: list[str]) -> str:
    return next((found for one in own if (found := _with(address, one)) != address), address)


def _with(address: str, own: str) -> str:
    try:
        theirs, ours = urlsplit(address), urlsplit(own)
        same = (theirs.scheme, theirs.username, theirs.hostname, theirs.port) == (
            ours.scheme,
            ours.username,
            ours.hostname,
            ours.port,
        )
    except ValueError:
        return address
    asked = dict(parse_qsl(theirs.query)), dict(parse_qsl(ours.query))
    where = [{name: query.get(name) for name in ("host", "hostaddr", "port", "user")} for query in asked]
    if not same or where[0] != where[1] or ours.password is None or theirs.hostname is None:
        return address
    user, _, server = theirs.netloc.rpartition("@")
    secret = ours.netloc.rpartition("@")[0].partition(":")[2]
    return urlunsplit(theirs._replace(netloc=f"{user}:{secret}@{server}"))
