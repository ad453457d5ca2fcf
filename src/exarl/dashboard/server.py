"""The web server of the dashboard: a few fixed addresses on loopback, for those who have the token."""

from __future__ import annotations

import gzip
import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from exarl.dashboard.control import stop
from exarl.dashboard.ranks import read_log
from exarl.dashboard.runs import MOST_COMPARED, RunViews
from exarl.display.curve import AXES
from exarl.errors import ConfigError
from exarl.records.directory import reason
from exarl.report.page import plotly_script
from exarl.report.style import CSS, DARK

HOST = "127.0.0.1"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names under which the page may be asked for; a tunnel may have another port."""
_LARGEST_BODY, _MOST_FIELDS = 4096, 200
_GZIP_FROM = 2048  # bytes
_HTML, _JSON = "text/html; charset=utf-8", "application/json"


class Refused(Exception):
    """A request that gets no answer but this status and line."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


class Dashboard(ThreadingHTTPServer):
    """Serves the runs below ``folder`` until it is closed; ConfigError when the port is in use.

    ``port`` 0: any that is free. With ``control``, runs can be stopped.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int, *, control: bool = False) -> None:
        self.runs = RunViews(folder)
        self.control = control
        self.token = secrets.token_urlsafe(24)
        self._assets = files("exarl.dashboard") / "assets"
        self._packed = {"/plotly.js": gzip.compress(plotly_script().encode(), 6)}
        try:
            super().__init__((HOST, port), Answer)
        except OSError as error:
            raise ConfigError(f"cannot use port {port}: {reason(error)} (--port)") from error
        self.cookie = f"exarl-{self.server_port}"

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, as the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]

    def asset(self, path: str, nonce: str) -> tuple[str, bytes] | None:
        """The type and content of one of the page's fixed parts; None for another path."""
        match path:
            case "/":
                return _HTML, self._text("page.html").replace("NONCE", nonce).encode()
            case "/style.css":
                return "text/css; charset=utf-8", (CSS + self._text("style.css")).encode()
            case "/app.js":
                facts = f"const DARK = {json.dumps(DARK)}, CONTROL = {json.dumps(self.control)};\n"
                return "text/javascript; charset=utf-8", (facts + self._text("app.js")).encode()
            case "/plotly.js":
                return "text/javascript; charset=utf-8", self._packed[path]
        return None

    def _text(self, name: str) -> str:
        return (self._assets / name).read_text(encoding="utf-8")


class Answer(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: Dashboard
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "EXARL", ""
    timeout = 120.0
    _nonce = ""

    def do_GET(self) -> None:
        self._try(self._get)

    def do_POST(self) -> None:
        self._try(self._post)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is the user's."""

    def _try(self, answer: Callable[[], None]) -> None:
        self._nonce = secrets.token_urlsafe(12)
        try:
            self._check_host()
            answer()
        except Refused as error:
            self.close_connection = True
            self._send(error.status, f"{error}\n".encode(), "text/plain; charset=utf-8")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    def _get(self) -> None:
        parts = urlsplit(self.path)
        try:
            asked = parse_qs(parts.query, max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "too long a question") from error
        if "token" in asked:
            self._check_token(asked["token"][0])
            cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(HTTPStatus.FOUND, b"", _HTML, {"Location": "/", "Set-Cookie": cookie})
            return
        self._check_cookie()
        if (asset := self.server.asset(parts.path, self._nonce)) is not None:
            packed = {"Content-Encoding": "gzip"} if parts.path == "/plotly.js" else {}
            keep = "private, max-age=86400" if packed else "no-store"
            self._send(HTTPStatus.OK, asset[1], asset[0], packed | {"Cache-Control": keep})
            return
        told = self._api(parts.path, asked)
        self._send(HTTPStatus.OK, told.encode("utf-8", "replace"), _JSON)

    def _api(self, path: str, asked: Mapping[str, list[str]]) -> str:
        """The answer to a question of the page, as JSON."""
        runs = self.server.runs
        first = {key: values[0] for key, values in asked.items()}
        try:
            match path:
                case "/api/runs":
                    return runs.changes(int(first.get("since", "0")))
                case "/api/view":
                    names, x = asked["run"], first.get("x", "steps")
                    if x not in AXES or len(names) > MOST_COMPARED:
                        raise ValueError(f"at most {MOST_COMPARED} runs, over {', '.join(AXES)}")
                    return runs.view(names, x, set(first.get("have", "").split(",")))
                case "/api/log":
                    run = runs.directory(first["run"])
                    return json.dumps(read_log(run, first["file"], int(first.get("from", "-1"))))
        except KeyError as error:
            raise Refused(HTTPStatus.NOT_FOUND, "no such run or log") from error
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "not a question of this page") from error
        except OSError as error:  # it was deleted meanwhile, or its disk is away
            words = f"cannot read the run's files: {reason(error)}"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, words) from error
        raise Refused(HTTPStatus.NOT_FOUND, "nothing is here")

    def _post(self) -> None:
        self._check_cookie()
        origin = urlsplit(self.headers.get("Origin", ""))
        if origin.netloc != self.headers.get("Host") or self.path != "/api/stop":
            raise Refused(HTTPStatus.FORBIDDEN, "only the page itself may ask for this")
        if not self.server.control:
            raise Refused(HTTPStatus.FORBIDDEN, "start the dashboard with --control to stop runs")
        try:
            size = int(self.headers.get("Content-Length", "0"))
            if not 0 < size <= _LARGEST_BODY:
                raise ValueError
            run = self.server.runs.directory(json.loads(self.rfile.read(size))["run"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Refused(HTTPStatus.NOT_FOUND, "no such run") from error
        self._send(HTTPStatus.OK, json.dumps({"said": stop(run)}).encode(), _JSON)

    def _check_host(self) -> None:
        """Refuse a name that leads here by another server's doing (DNS rebinding)."""
        host, _, port = self.headers.get("Host", "").rpartition(":")
        name = host if port.isdecimal() else self.headers.get("Host", "")
        if name.lower() not in LOOPBACK:
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers on loopback only")

    def _check_cookie(self) -> None:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            found = None
        self._check_token(found.value if found else "")

    def _check_token(self, given: str) -> None:
        same = hmac.compare_digest(given.encode("utf-8", "replace"), self.server.token.encode())
        if not same:
            words = "open the address that 'exarl dashboard' has printed, with its token"
            raise Refused(HTTPStatus.FORBIDDEN, words)

    def _send(
        self, status: HTTPStatus, body: bytes, kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        more = dict(headers or {})
        accepts = "gzip" in self.headers.get("Accept-Encoding", "")
        if len(body) > _GZIP_FROM and accepts and "Content-Encoding" not in more:
            body, more["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        self.send_response(status)
        fixed = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": _policy(self._nonce),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in (fixed | more).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _policy(nonce: str) -> str:
    """What the page may load: its own files only. Plotly writes rules into one marked style element,
    attributes ``style`` (which run nothing), and pictures of its own."""
    return (
        "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data: blob:;"
        f" style-src-elem 'self' 'nonce-{nonce}'; style-src-attr 'unsafe-inline';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
