"""What the dashboard's server answers, to whom, and at what cost."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.runs import make_row, write_run

from exarl.dashboard.server import Dashboard
from exarl.errors import ConfigError
from exarl.records.alive import own_card
from exarl.records.lock import RunLock

HOSTILE = "<img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """A browser that has opened the address of the dashboard, or another one."""

    def __init__(self, server: Dashboard) -> None:
        self.server = server
        self.headers = {"Cookie": f"{server.cookie}={server.token}"}

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def ask(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = {}
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=20)
        connection.request(method, path, body, {**self.headers, **headers})
        answer = connection.getresponse()
        reply = Reply(answer.status, dict(answer.headers), answer.read().decode())
        connection.close()
        return reply

    def view(self, *names: str, have: str = "") -> Any:
        asked = "&".join(f"run={quote(name)}" for name in names)
        reply = self.get(f"/api/view?{asked}&have={have}")
        assert reply.status == 200, reply
        return reply.json


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the five megabytes of the library, and without rest between two looks."""
    monkeypatch.setattr("exarl.dashboard.server.plotly_script", lambda: "var Plotly;")
    for name in ("_LEAST_S", "_SCAN_S", "_REST"):
        monkeypatch.setattr(f"exarl.dashboard.runs.{name}", 0.0)


def serve(folder: Path, control: bool = False) -> Iterator[Client]:
    with Dashboard(folder, 0, control=control) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield Client(server)
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    yield from serve(folder)


@pytest.fixture
def controlling(folder: Path) -> Iterator[Client]:
    yield from serve(folder, control=True)


def test_the_address_becomes_a_cookie_that_no_script_reads(client: Client) -> None:
    client.headers = {}
    reply = client.get(client.server.address.partition(str(client.server.server_port))[2])
    assert (reply.status, reply.headers["Location"]) == (302, "/")
    cookie = reply.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    client.headers = {"Cookie": cookie.partition(";")[0]}
    assert "<title>EXARL</title>" in client.get("/").text
    assert client.server.address.startswith("http://127.0.0.1:")
    assert len(client.server.token) >= 32


@pytest.mark.parametrize(
    "path", ["/", "/app.js", "/plotly.js", "/api/runs", "/api/view?run=a", "/x"]
)
@pytest.mark.parametrize("cookie", ["", "wrong", "é\x00", "a=b; ="])
def test_nothing_without_the_token(client: Client, path: str, cookie: str) -> None:
    client.headers = {"Cookie": f"{client.server.cookie}={cookie}".replace("\x00", "")}
    reply = client.get(path)
    assert reply.status == 403
    assert "token" in reply.text
    assert client.get("/?token=wrong").status == 403


def test_another_host_name_is_refused(client: Client) -> None:
    for name in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert client.get("/", Host=name).status == 403, name
    for name in ("localhost:1234", "127.0.0.1", "[::1]:80"):
        assert client.get("/", Host=name).status == 200, name


def test_the_policy_lets_nothing_in(client: Client) -> None:
    reply = client.get("/")
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe-eval" not in policy and "http" not in policy
    nonce = re.search(r"'nonce-([\w-]+)'", policy)
    assert nonce is not None and f'nonce="{nonce[1]}"' in reply.text
    assert client.get("/").headers["Content-Security-Policy"] != policy, "a nonce is used once"
    assert not re.search(r'(src|href)="(https?:)?//', reply.text)
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.log",
        "/..%2fsecret.log",
        "/assets/app.js",
        "/api/view?run=../outside",
        "/api/view?run=/etc",
        "/api/view?run=",
        "/api/log?run=../outside&file=rank_0000.log",
        "/api/log?run=a&file=../config.json",
        "/api/log?run=a&file=..%2f..%2f..%2foutside%2flogs%2frank_0000.log",
        "/api/log?run=a",
        "/api/view",
    ],
)
def test_a_path_in_a_question_reaches_no_file(client: Client, folder: Path, path: str) -> None:
    write_run(folder / "a")
    outside = write_run(folder.parent / "outside")
    outside.rank_file("rank", 0, "log").write_text("secret")
    (folder.parent / "secret.log").write_text("secret")
    reply = client.get(path)
    assert reply.status == 404, reply
    assert "secret" not in reply.text


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs?since=x",
        "/api/view?run=a&x=y",
        "/api/view?" + "run=a&" * 61,
        "/api/view?" + "run=a&" * 201,
        "/api/log?run=a&file=rank_0000.log&from=x",
    ],
)
def test_other_questions_are_refused(client: Client, folder: Path, path: str) -> None:
    write_run(folder / "a")
    assert client.get(path).status == 400


def test_text_of_strangers_is_escaped(client: Client, folder: Path) -> None:
    name = HOSTILE.replace("/", "")
    changes = {"learner.agent": HOSTILE, "learner.env": HOSTILE}
    run = write_run(folder / name, changes, **{f"loss{HOSTILE}": 1.0})
    run.summary.write_text(json.dumps({"reason": "failed", "error": HOSTILE, "bound_by": HOSTILE}))
    run.rank_file("rank", 0, "log").write_text(HOSTILE)
    client.get("/api/runs")
    told = client.view(name)
    assert "&lt;img" in json.dumps(told)
    for section in told["sections"]:
        assert "<img" not in section["html"], section["title"]
    log = client.get(f"/api/log?run={quote(name)}&file=rank_0000.log")
    assert log.json["text"] == HOSTILE, "the page makes it a text node"
    assert log.headers["Content-Type"] == "application/json"


def test_the_list_tells_what_changed(client: Client, folder: Path) -> None:
    assert client.get("/api/runs").json["runs"] == []
    for name in ("a", "b/c"):
        write_run(folder / name)
    first = client.get("/api/runs?since=0").json
    assert sorted(first["names"]) == ["a", "b/c"]
    assert {run["state"] for run in first["runs"]} == {"finished"}
    assert len(first["runs"][0]["curve"]) <= 42
    again = client.get(f"/api/runs?since={first['version']}").json
    assert (again["runs"], again["version"]) == ([], first["version"])
    with (folder / "a/result.jsonl").open("a") as file:
        file.write(json.dumps(make_row(41, 5.0)) + "\n")
    (folder / "a/summary.json").unlink()
    changed = client.get(f"/api/runs?since={first['version']}").json
    assert [(run["run"], run["steps"]) for run in changed["runs"]] == [("a", 1025)]
    shutil.rmtree(folder / "b")
    gone = client.get(f"/api/runs?since={changed['version']}").json
    assert (gone["names"], gone["count"]) == (["a"], 1)
    assert client.get("/api/view?run=b/c").status == 404


def test_runs_of_a_study_in_a_folder_of_runs_are_listed(client: Client, folder: Path) -> None:
    write_run(folder / "study/trials/0000/seed_1")
    assert client.get("/api/runs").json["names"] == ["study/trials/0000/seed_1"]


def test_a_page_gets_only_the_sections_that_changed(client: Client, folder: Path) -> None:
    run = write_run(folder / "a", ended=False)
    client.get("/api/runs")
    first = client.view("a")["sections"]
    titles = {section["id"]: section["title"] for section in first}
    assert {"Now", "Learning curves", "Configuration"} <= set(titles.values())
    have = ",".join(section["digest"] for section in first)
    assert not [s for s in client.view("a", have=have)["sections"] if "html" in s]
    with run.result.open("a") as file:
        file.write(json.dumps(make_row(41, 5.0)) + "\n")
    fresh = [s for s in client.view("a", have=have)["sections"] if "html" in s]
    assert {"Now", "Learning curves"} <= {s["title"] for s in fresh}
    assert "Configuration" not in {s["title"] for s in fresh}
    curve = next(s for s in fresh if s["title"] == "Learning curves")["figures"]
    assert next(iter(curve.values()))["data"][0]["y"][-1] == 5.0


def test_runs_are_compared_over_what_differs(client: Client, folder: Path) -> None:
    for i, rate in enumerate([0.1, 0.2, 0.2, 0.3]):
        write_run(folder / f"trial_{i}", {"agent.learning_rate": rate, "learner.seed": i}, level=i)
    client.get("/api/runs")
    told = client.view(*(f"trial_{i}" for i in range(4)))["sections"]
    (drawn,) = next(s for s in told if s["title"] == "Result over parameters")["figures"].values()
    assert sorted(drawn["data"][0]["x"]) == [0.1, 0.2, 0.2, 0.3]
    overview = next(s for s in told if s["title"] == "Overview")["html"]
    assert overview.count("learning_rate") == 3, "two seeds of 0.2 are one group"


def test_a_thousand_runs_are_listed_fast(client: Client, folder: Path) -> None:
    write_run(folder / "run_0000", rows=400)
    for i in range(1, 1000):
        shutil.copytree(folder / "run_0000", folder / f"run_{i:04d}")
    began = time.monotonic()
    first = client.get("/api/runs").json
    full = time.monotonic() - began
    assert len(first["runs"]) == 1000
    began = time.monotonic()
    assert client.get(f"/api/runs?since={first['version']}").json["runs"] == []
    again = time.monotonic() - began
    print(f"first {full:.2f} s, then {again:.3f} s")
    assert full < 10.0, "about 1 s on an idle machine"
    assert again < 1.0, "about 0.05 s on an idle machine"


def test_stopping_needs_control_and_the_page(
    client: Client, controlling: Client, folder: Path
) -> None:
    write_run(folder / "a")
    body = json.dumps({"run": "a"})

    def told(asked: Client, body: str = body, origin: str | None = None, path: str = "/api/stop"):  # type: ignore[no-untyped-def]
        own = f"http://127.0.0.1:{asked.server.server_port}"
        return asked.ask("POST", path, body, {"Origin": origin or own})

    assert "--control" in told(client).text
    for reply in (
        told(controlling, origin="http://evil.example"),
        told(controlling, origin="null"),
        told(controlling, path="/api/other"),
    ):
        assert reply.status == 403
    for odd in ("", "[]", '{"run": "../a"}', '{"run": ["a"]}', "x" * 5000):
        assert told(controlling, odd).status == 404, odd
    assert told(controlling).json == {"said": "the run is not running"}


CHILD = """
import json, signal, sys, time
from pathlib import Path
from exarl.records.directory import RunDirectory
from exarl.records.lock import RunLock
from exarl.records.signals import StopSignals
with RunLock(RunDirectory(Path(sys.argv[1]))):
    print("starting", flush=True)
    sys.stdin.readline()
    with StopSignals() as signals:
        print("listening", flush=True)
        while signals.received is None:
            time.sleep(0.01)
        print(signals.received, flush=True)
"""


def test_a_run_of_this_machine_is_stopped_once_it_listens(
    controlling: Client, folder: Path
) -> None:
    run = write_run(folder / "a", ended=False)
    words = [sys.executable, "-c", CHILD, str(run.path)]
    own = {"Origin": f"http://127.0.0.1:{controlling.server.server_port}"}
    body = json.dumps({"run": "a"})
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "starting\n"
        said = controlling.ask("POST", "/api/stop", body, own).json["said"]
        assert "does not listen" in said
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "listening\n"
        said = controlling.ask("POST", "/api/stop", body, own).json["said"]
        assert said == "the run was asked to write a checkpoint and to stop"
        assert child.stdout.readline() == f"{int(signal.SIGUSR1)}\n"


def test_a_run_elsewhere_cannot_be_stopped(controlling: Client, folder: Path) -> None:
    run = write_run(folder / "a", ended=False)
    card = {**own_card(), "host": "node7", "machine": "another", "part": "theirs"}
    run.lock.write_text(json.dumps(card))
    own = {"Origin": f"http://127.0.0.1:{controlling.server.server_port}"}
    said = controlling.ask("POST", "/api/stop", json.dumps({"run": "a"}), own).json["said"]
    assert said == "the run is on node7: a signal reaches it only from there"


def test_a_running_run_says_what_bounds_it(client: Client, folder: Path) -> None:
    columns = {"time/wait": 0.9, "time/learn": 0.1}
    run = write_run(folder / "a", {"learner.workflow": "async"}, world=5, ended=False, **columns)
    with RunLock(run):
        client.get("/api/runs")
        now = next(s for s in client.view("a")["sections"] if s["title"] == "Now")
    assert "Bound by the environments: the learner waits 90% of its time" in now["html"]


def test_a_port_in_use_is_one_line(client: Client, folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot use port \d+: Address already in use \(--port\)"
    ):
        Dashboard(folder, client.server.server_port)


def test_the_command_prints_its_address_and_ends_with_ctrl_c(folder: Path) -> None:
    pytest.importorskip("plotly")
    words = [sys.executable, "-m", "exarl", "dashboard", str(folder), "--port", "0", "--no-browser"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        address = process.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", address)
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
