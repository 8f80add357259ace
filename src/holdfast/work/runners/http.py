"""The context of an http handler: a connection that stays open. Its body is the URL that gets each payload.

single   one request for each job; the exit code is the status of the response, the result its body
batch    one request for all jobs, a line for each; the response has a line for each, which begins with the
         exit code; lines that begin with `#` and blank lines are ignored. JSON is written on one line; bytes
         with newlines have a request of their own

Connects http handlers to public addresses only, unless the operator has allowed others.

The address that was checked is the one that is connected to. A name that stands for a public address when it
is checked, and for a private one a moment later, does not get through.
"""

import errno
import http.client
import ipaddress
import math
import re
import socket
import ssl
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, urlsplit

import msgspec

from ...core.bounds import DATA_BYTES
from ...core.handler import Handler
from ...core.job import Body
from ...queue.timers import TimerThread
from ...store.common.clock import monotonic_s
from .contexts import ContextKey, WarmContext, early_ms
from .dialects import BAD_JSON, is_exit_code, refuse_exit_code
from .records import (
    BAD_HANDLER,
    BATCH_ERROR,
    CANCELLED,
    ERROR,
    INVALID_RESPONSE,
    NO_RESPONSE,
    RESULT_LIMIT,
    Charge,
    ContextFailed,
    HandlerJob,
    RunResult,
)
from .settings import RunnerSettings

READ_BYTES = 1 << 16
_LEADING_NUMBER = re.compile(rb"\s*(\d{1,9})(?!\d)")
# Characters that cannot be sent in a request line.
_BLANK = re.compile(r"[\x00-\x20\x7f]")
HEADERS = {"Content-Type": "text/plain; charset=utf-8", "User-Agent": "holdfast", "Accept": "*/*"}
Requested = tuple[int, str, bytes]


class HttpContext(WarmContext):
    """An open connection to the host of a URL."""

    def __init__(self, key: ContextKey, settings: RunnerSettings, timers: TimerThread) -> None:
        super().__init__(key)
        self._hosts, self._timers = settings.hosts, timers
        # A host that the operator has listed may have any address.
        self._any_address = settings.private_hosts or bool(settings.hosts)
        self._connection: http.client.HTTPConnection | None = None
        # Kept apart: the connection forgets it when a response says that it is the last.
        self._socket: socket.socket | None = None
        self._origin: tuple[str, str] = ("", "")
        # When the request that runs must end; when a timer checks that; whether it was ended.
        self._deadline_s: float | None = None
        self._timer_s = math.inf
        self._is_late = False
        self._is_cancelled = False

    def is_clean(self) -> bool:
        """Whether it can run another job: unless it was cancelled, as each gets a connection that works."""
        return not self._is_cancelled

    def prepare(self, handler: Handler) -> None:
        """Check the URL, and request that of `before` once; raises `ContextFailed`."""
        _parse(handler.body, self._hosts)
        if not self._is_prepared and handler.before:
            self.start_charge += self._call_script(handler.before, "before")
        self._is_prepared = True

    def run_around(self, handler: Handler, script: str) -> Charge:
        """Request the URL of `before_each` or `after_each`; raises `ContextFailed` if that fails."""
        url: str = getattr(handler, script)
        return self._call_script(url, script) if url else Charge()

    def _call_script(self, url: str, name: str) -> Charge:
        started_s = monotonic_s()
        try:
            status, _, _ = self._request(url, b"", self._options.timeout_ms)
        except _TransportError as error:
            raise ContextFailed(str(error), f"{name}: {error.explain(url)}") from None
        if status // 100 != 2:
            raise ContextFailed(BAD_HANDLER, f"{name}: status {status} of {_origin_of(url)}")
        return Charge(0.0, (monotonic_s() - started_s) * 1000)

    def run_job(self, handler: Handler, job: HandlerJob) -> RunResult:
        """Request the URL for one job."""
        self._jobs += 1
        wall_ms = early_ms(job.timeout_ms, self._options.timeout_ms)
        started_s = monotonic_s()
        try:
            status, kind, body = self._request(handler.body, job.payload + b"\n", wall_ms)
        except _TransportError as error:
            result = RunResult(exit_code=ERROR, error=f"{error}: {error.explain(handler.body)}")
        else:
            result = _result_of(status, _as_result(kind, body))
        return msgspec.structs.replace(result, wall_ms=(monotonic_s() - started_s) * 1000)

    def run_batch(self, handler: Handler, jobs: Sequence[HandlerJob]) -> list[RunResult]:
        """Request the URL once for all jobs, and for each that needs several lines by itself."""
        self._jobs += len(jobs)
        lines = [_as_line(job.payload) for job in jobs]
        groups = [[at for at, line in enumerate(lines) if not _is_split(line)]]
        groups += [[at] for at, line in enumerate(lines) if _is_split(line)]
        found: dict[int, RunResult] = {}
        for group in groups:
            payload = b"".join(lines[at] + b"\n" for at in group)
            found |= zip(group, self._run_lines(handler, [jobs[at] for at in group], payload), strict=True)
        return [found[at] for at in range(len(jobs))]

    def _run_lines(self, handler: Handler, jobs: Sequence[HandlerJob], payload: bytes) -> list[RunResult]:
        """Request the URL once for these jobs; a result for each."""
        if not jobs:
            return []
        wall_ms = min(early_ms(job.timeout_ms, self._options.timeout_ms) for job in jobs)
        started_s = monotonic_s()
        try:
            _, _, body = self._request(handler.body, payload, wall_ms)
            results = read_replies(body, len(jobs))
        except _TransportError as error:
            failed = RunResult(exit_code=ERROR, error=f"{error}: {error.explain(handler.body)}")
            results = [failed] * len(jobs)
        share_ms = (monotonic_s() - started_s) * 1000 / len(jobs)
        return [msgspec.structs.replace(result, wall_ms=share_ms) for result in results]

    def _request(self, url: str, payload: bytes, timeout_ms: float) -> Requested:
        """The status, content type and body of a response, within a time limit in all."""
        parts = _parse(url, self._hosts)
        self._is_late = False
        self._start_deadline(timeout_ms / 1000)
        try:
            self._check_ended()
            reused = self._connect(parts, timeout_ms)
            try:
                return self._exchange(parts, payload)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self._check_ended()
                if not reused:
                    raise
            # The server had closed the connection that was kept open.
            self._disconnect()
            self._connect(parts, timeout_ms)
            return self._exchange(parts, payload)
        except ForbiddenAddress as error:
            raise _TransportError(FORBIDDEN_ADDRESS, str(error)) from None
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            if self._is_cancelled:
                raise _TransportError(CANCELLED, "the job was cancelled") from None
            raise _TransportError(TIMEOUT_CODE if self._is_late else transport_code(error)) from None
        finally:
            self._deadline_s = None

    def _connect(self, parts: SplitResult, timeout_ms: float) -> bool:
        """Have a connection to the host of a URL; returns whether it was open already."""
        origin = (parts.scheme, parts.netloc)
        if self._connection is not None and self._origin == origin and self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_ms / 1000)
            return True
        self._disconnect()
        host, port = str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)
        # Connected here and not by the library, which would ask for the addresses of the host a second time.
        sock = open_public(host, port, self._deadline_s or 0.0, any_address=self._any_address)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname=host)
            self._connection = http.client.HTTPSConnection(host, port, context=context)
        else:
            self._connection = http.client.HTTPConnection(host, port)
        self._connection.auto_open = 0
        sock.settimeout(timeout_ms / 1000)
        self._connection.sock = self._socket = sock
        self._origin = origin
        # It may have been ended before there was a connection to end.
        self._check_ended()
        return False

    def _check_ended(self) -> None:
        """Raise `TimeoutError` if the request was ended."""
        if self._is_late or self._is_cancelled:
            raise TimeoutError

    def _exchange(self, parts: SplitResult, payload: bytes) -> Requested:
        connection = self._connection
        assert connection is not None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body=payload, headers=HEADERS)
        response = connection.getresponse()
        chunks, size = [], 0
        while chunk := response.read(READ_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if size > DATA_BYTES:
                self._disconnect()
                raise _TransportError(RESULT_LIMIT)
        # The library takes a connection that ended too early for the end of the body.
        self._check_ended()
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return response.status, response.headers.get_content_type(), b"".join(chunks)

    def _start_deadline(self, wait_s: float) -> None:
        """Set when the request must end. One timer serves many requests: a timer for each would pile up."""
        self._deadline_s = monotonic_s() + wait_s
        if self._deadline_s < self._timer_s:
            self._set_timer(self._deadline_s)

    def _set_timer(self, at_s: float) -> None:
        self._timer_s = at_s
        self._timers.after(at_s - monotonic_s(), lambda: self._check_deadline(at_s))

    def _check_deadline(self, timer_s: float) -> None:
        if timer_s != self._timer_s:
            return  # there is an earlier one
        self._timer_s = math.inf
        deadline_s = self._deadline_s
        if deadline_s is None:
            return
        if deadline_s > monotonic_s():
            self._set_timer(deadline_s)
        else:
            self._abort()

    def _abort(self) -> None:
        """End a request that takes too long, or whose job was cancelled."""
        self._is_late = True
        if (sock := self._socket) is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has just been closed

    def cancel(self) -> None:
        """End the request that runs."""
        self._is_cancelled = self._has_failed = True
        self._abort()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._socket = None

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()


TIMEOUT_CODE = "ETIMEDOUT"


class _TransportError(Exception):
    """A request got no response; `code` is one such as ECONNREFUSED."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code)
        self._reason = reason

    def explain(self, url: str) -> str:
        """What happened to a request of a URL."""
        return self._reason or f"no response of {_origin_of(url)}"


def transport_code(error: BaseException) -> str:
    """The code of an error of a connection, by its name in errno."""
    if isinstance(error, TimeoutError):
        return TIMEOUT_CODE
    if isinstance(error, socket.gaierror):
        return "ENOTFOUND"
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "ECONNRESET"
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number or 0, BATCH_ERROR)


def _parse(url: str, hosts: Sequence[str]) -> SplitResult:
    try:
        if (blank := _BLANK.search(url.strip())) is not None:
            raise ValueError(f"{blank[0]!r} must be percent-encoded")
        parts = urlsplit(url.strip())
        _ = parts.port
        (parts.hostname or "").encode("idna")
        (parts.path + parts.query).encode("ascii")
    except ValueError as error:
        raise ContextFailed(BAD_HANDLER, f"the URL cannot be used: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ContextFailed(BAD_HANDLER, "this is not an http or https URL")
    if hosts and not any(fnmatchcase(parts.hostname, glob) for glob in hosts):
        raise ContextFailed(BAD_HANDLER, f"{parts.hostname} is not a host that this worker allows")
    return parts


def _origin_of(url: str) -> str:
    """The scheme, host and port of a URL. Errors show no more: the rest may have secrets, as scripts may."""
    parts = urlsplit(url.strip())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _as_result(kind: str, body: bytes) -> Body | None:
    """The body of a response as a result: JSON as it is, text as a JSON string, else bytes."""
    if not body:
        return None
    try:
        text = body.decode()
        if kind == "application/json":
            msgspec.json.decode(body)
            return text
        return msgspec.json.encode(text).decode()
    except (UnicodeDecodeError, *BAD_JSON):
        return body


def _is_split(payload: bytes) -> bool:
    """Whether a receiver finds more than one line in it."""
    return b"\n" in payload or b"\r" in payload


def _as_line(payload: bytes) -> bytes:
    """A payload on one line, if it is JSON: the replies to a batch are matched to its lines."""
    if not _is_split(payload):
        return payload
    try:
        return msgspec.json.format(payload, indent=-1)
    except BAD_JSON:
        return payload


def _result_of(exit_code: int, body: Body | None = None) -> RunResult:
    """The result that a server has replied; one with a number that is no exit code is an error of its own."""
    if is_exit_code(exit_code):
        return RunResult(exit_code=exit_code, body=body)
    return RunResult(exit_code=ERROR, error=f"{INVALID_RESPONSE}: {refuse_exit_code(exit_code)}")


def read_replies(body: bytes, count: int) -> list[RunResult]:
    """The results of a batch, from the lines of its response."""
    lines = [line for line in body.splitlines() if line.strip() and not line.startswith(b"#")]
    results: list[RunResult] = []
    for line in lines[:count]:
        match = _LEADING_NUMBER.match(line)
        if match is None:
            shown = line[:100].decode(errors="replace")
            invalid = RunResult(exit_code=ERROR, error=f"{INVALID_RESPONSE}: {shown!r} has no exit code")
            return results + [invalid] * (count - len(results))
        results.append(_result_of(int(match[1])))
    missing = RunResult(exit_code=ERROR, error=f"{NO_RESPONSE}: {len(results)} replies to {count} jobs")
    return results + [missing] * (count - len(results))


# The code of a job that named such a host.
FORBIDDEN_ADDRESS = "FORBIDDEN_ADDRESS"
# Where public addresses are. Of IPv6, private networks of today and of before are outside, and multicast.
INTERNET = tuple(map(ipaddress.ip_network, ("0.0.0.0/0", "2000::/3")))
# Where they are not: the blocks of the IANA registries of special-purpose addresses, also the few reachable
# ones, where no web server is. Python versions differ in what their `ipaddress` says about these blocks.
SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by the customers of a provider; the metadata server of a cloud
            "127.0.0.0/8",  # this machine
            "168.63.129.16/32",  # in no registry: the server of a cloud for its own machines
            "169.254.0.0/16",  # the link; metadata servers of clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocols of the IETF; the metadata server of a cloud
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # name servers for private addresses
            "192.52.193.0/24",  # multicast relays
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # name servers for private addresses
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # protocols of the IETF: Teredo, which contains IPv4 addresses, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which contains IPv4 addresses
            "2620:4f:8000::/48",  # name servers for private addresses
            "3fff::/20",  # documentation
        ),
    )
)
# IPv6 addresses that stand for the IPv4 addresses in their last 32 bits: mapped ones, and NAT64.
EMBEDDED = tuple(map(ipaddress.ip_network, ("::ffff:0:0/96", "64:ff9b::/96")))
Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class ForbiddenAddress(Exception):
    """A host has no address that http handlers may reach; which it has is not told to its tenant."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} has no public address, and http handlers may reach no others here; "
            "list the host in `hosts` of the file of --runners"
        )


def open_public(host: str, port: int, until_s: float, *, any_address: bool) -> socket.socket:
    """A connection to the first address of a host that accepts it, before a moment of the monotonic clock.

    Raises `ForbiddenAddress` or `OSError`.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    allowed = [one for one in found if any_address or is_public(str(one[4][0]))]
    if not allowed:
        raise ForbiddenAddress(host)
    for family, kind, protocol, _, address in allowed:
        if (left_s := until_s - monotonic_s()) <= 0:
            raise TimeoutError
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left_s)
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            failed = error
    raise failed


def is_public(text: str) -> bool:
    """Whether an address is one of the Internet: not of this machine, its link, a private network or none."""
    address: Ip = ipaddress.ip_address(text)
    if any(address in network for network in EMBEDDED):
        address = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    is_outside = not any(address in network for network in INTERNET)
    return not is_outside and not any(address in network for network in SPECIAL)
