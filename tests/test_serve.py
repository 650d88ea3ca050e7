"""The server, in a process of its own, asked over real connections."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autocross import AutoCrossClassifier, load
from autocross.cli import app, run
from autocross.server.app import ENTRIES
from served import WAIT, Served, read_all

pytestmark = pytest.mark.slow

ROW = {"job": "nurse", "age": 37.5, "rooms": 2, "member": True, "tags": ["a", "c"], "born": "1971-03-04"}


@pytest.fixture(scope="module")
def files(classifier: AutoCrossClassifier, people: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models."""
    folder = tmp_path_factory.mktemp("models")
    classifier.save(folder / "people.acx")
    AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(people.head(300), "bought").save(folder / "fewer.acx")
    return folder


@pytest.fixture(scope="module")
def server(files: Path) -> Iterator[Served]:
    """A server of both models."""
    with Served(files / "people.acx", f"shop:7={files / 'fewer.acx'}", f"shop:8={files / 'people.acx'}") as found:
        yield found


def test_scores_are_those_of_the_library_to_the_bit(server: Served, files: Path) -> None:
    scorer = load(files / "people.acx")
    one = server.post("/score", ROW)
    assert one.status == 200 and one.headers["content-type"] == "application/json"
    assert one.json["probability"] == scorer.score_one(ROW) and one.json["model"] == "people"
    rows = [ROW, {}, {"age": None, "job": "unseen"}, {"unknown": 1}] * 30
    many = server.post("/score", rows)
    assert many.json["probabilities"] == [scorer.score_one(row) for row in rows]
    assert server.post("/score", []).json["probabilities"] == []


def test_models_and_versions_have_addresses(server: Served, files: Path) -> None:
    people, fewer = load(files / "people.acx").score_one(ROW), load(files / "fewer.acx").score_one(ROW)
    assert server.post("/models/shop/score", ROW).json == {"probability": people, "model": "shop", "version": "8"}
    assert server.post("/models/shop/versions/7/score", ROW).json["probability"] == fewer
    assert server.get("/models").json["default"] == "people"
    facts = server.get("/models/shop/versions/7").json
    assert facts["versions"] == ["7", "8"] and facts["target"] == "bought" and facts["crosses"] == []
    assert {"name": "age", "kind": "numerical", "stored": "number"} in facts["fields"]
    assert re.fullmatch("[0-9a-f]{64}", facts["hash"])
    missing = server.post("/models/nobody/score", ROW)
    assert missing.status == 404 and "There is no model 'nobody'. There are: people" in missing.json["error"]
    assert server.get("/models/shop/versions/9").status == 404


def test_reasons_are_those_of_the_library(server: Served, files: Path) -> None:
    expected = load(files / "people.acx").explain(ROW).to_dict()
    found = server.post("/explain?top=2", ROW).json
    assert found["reasons"] == json.loads(json.dumps(expected["reasons"][:2]))
    assert found["others"] == pytest.approx(sum(reason["contribution"] for reason in expected["reasons"][2:]))
    several = server.post("/models/people/explain?by=field&top=1000", [ROW, {}]).json["explanations"]
    assert len(several) == 2 and several[0]["others"] == 0 and len(several[0]["reasons"]) > len(expected["reasons"])
    for query, field in (("by=row", "by"), ("top=-1", "top"), ("top=x", "top"), ("limit=3", "limit")):
        answer = server.post(f"/explain?{query}", ROW)
        assert (answer.status, answer.json["field"]) == (422, field)


@pytest.mark.parametrize(
    ("body", "status", "message", "field"),
    [
        (b"", 400, "The body is empty", None),
        (b"{", 400, "no JSON", None),
        (b'{"age": 1} x', 400, "no JSON", None),
        (b'{"age": NaN}', 400, "NaN, which JSON does not have", None),
        (b'{"age": Infinity}', 400, "Infinity, which JSON does not have", None),
        (b'{"age": 1e999}', 400, "'age' holds a number that is too large", "age"),
        (b'[{"tags": [1, -1e999]}]', 400, "'tags' holds a number that is too large", "tags"),
        (b'{"age": ' + b"9" * 5000 + b"}", 400, "'age' holds a number that is too large", "age"),
        (b'{"age": 1, "job": "x", "age": 2}', 400, "the key 'age' twice", "age"),
        (b'{"job": "a:b", "job": "a:b"}', 400, "the key 'job' twice", "job"),
        (b'{"job": "\xff"}', 400, "not UTF-8", None),
        (b'{"job": "\\ud800"}', 400, "no JSON that can be read", None),
        (b"[" * 100_000, 400, "nested too deeply", None),
        (b'{"age": ' + b"[" * 100 + b"]" * 100 + b"}", 400, "nested too deeply", None),
        (b"17", 422, "The body is a number. Give an object", None),
        (b'["a"]', 422, "Row 0 is a text. Give an object", None),
        (b'{"age": {"value": 3}}', 422, "Field 'age' holds an object", "age"),
        (b'[{}, {"tags": [["a"]]}]', 422, "Field 'tags' of row 1 holds a list with a list", "tags"),
        (b'{"age": "old"}', 422, "Column 'age' is numerical, but the row holds 'old'", "age"),
        (b'[{"age": 3}, {"born": 12}]', 422, "Row 1: Column 'born'", "born"),
        (b'{"age": [1, 2]}', 422, "Column 'age'", "age"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_rows_are_refused_with_their_place(server: Served, body: bytes, status: int, message: str, field: str | None) -> None:
    answer = server.post("/score", body)
    assert answer.status == status
    assert message in answer.json["error"]
    assert answer.json.get("field") == field


def test_odd_numbers_are_scored_as_the_library_does(server: Served, files: Path) -> None:
    scorer = load(files / "people.acx")
    for text in ("-0.0", "1e308", "5e-324", "9007199254740993", "1" + "0" * 300, '"  37 "', "true", "null"):
        answer = server.post("/score", f'{{"age": {text}, "rooms": {text}}}')
        value = json.loads(text)
        assert answer.json["probability"] == scorer.score_one({"age": value, "rooms": value}), text


def test_addresses_and_methods_that_there_are_not(server: Served) -> None:
    assert server.get("/nothing").status == 404
    assert server.post("/healthz", {}).status == 405
    wrong = server.get("/score")
    assert wrong.status == 405 and wrong.headers["allow"] == "POST" and "/openapi.json" in wrong.json["error"]
    assert server.ask("HEAD", "/healthz").body == b""


def test_health(server: Served) -> None:
    assert [server.get(path).status for path in ("/healthz", "/readyz", "/ping", "/v2/health/live", "/v2/health/ready")] == [
        200
    ] * 5


def test_chunked_bodies_need_no_length(server: Served, files: Path) -> None:
    body = json.dumps(ROW).encode()
    chunks = b"".join(b"1\r\n" + body[n : n + 1] + b"\r\n" for n in range(len(body))) + b"0\r\n\r\n"
    head = b"POST /score HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = server.raw(head, chunks)
    assert answer.startswith(b"HTTP/1.1 200") and str(load(files / "people.acx").score_one(ROW)).encode() in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\n{}",
        b"POST /score HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_request_is_refused(server: Served, request_bytes: bytes) -> None:
    answer = server.raw(request_bytes)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 4")) and b'"error"' in answer
    assert server.get("/healthz").status == 200


def test_headers_without_end_are_refused(server: Served) -> None:
    with server.connect() as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\n")
        try:
            for _ in range(100):
                line.sendall(b"x: " + b"y" * 4_000 + b"\r\n")
            answer = read_all(line)
        except OSError:  # the server has closed the connection meanwhile, and the answer is lost on the way
            answer = b"HTTP/1.1 431"
        assert answer.startswith(b"HTTP/1.1 431")
    assert server.get("/healthz").status == 200


def test_a_client_that_leaves_does_no_harm(server: Served) -> None:
    with server.connect() as line:
        line.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    server.wait_for("request", status=499)
    assert server.get("/healthz").status == 200


def test_several_requests_on_one_connection(server: Served) -> None:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    for body, status in ((json.dumps(ROW), 200), ("{", 400), (json.dumps([ROW]), 200)):
        line.request("POST", "/score", body)
        answer = line.getresponse()
        assert answer.status == status and answer.read()
    line.close()
    piped = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2 + b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert server.raw(piped).count(b"HTTP/1.1 200") == 3


def test_metrics_are_what_prometheus_reads(server: Served) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    server.post("/models/shop/score", [ROW] * 5)
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parser.text_string_to_metric_families(answer.body.decode())}
    rows = {sample.labels["model"]: sample.value for sample in families["autocross_rows"].samples}
    assert rows["shop"] >= 5
    requests = {(s.labels["route"], s.labels["status"]): s.value for s in families["autocross_requests"].samples}
    assert requests["/models/{name}/score", "200"] >= 1
    counts = [s.value for s in families["autocross_request_seconds"].samples if s.labels.get("route") == "/models/{name}/score"]
    assert counts[:-2] == sorted(counts[:-2])
    infos = [sample.labels for sample in families["autocross_model_info"].samples]
    assert {(info["model"], info["version"]) for info in infos} >= {("shop", "7"), ("shop", "8")}
    assert families["autocross_requests_in_progress"].samples[0].value == 1


def test_the_document_has_every_address(server: Served) -> None:
    document = server.get("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {entry.path for entry in ENTRIES}
    for entry in ENTRIES:
        operation = document["paths"][entry.path][entry.method.lower()]
        assert operation["summary"] and operation["responses"]["200"]
        assert [one["name"] for one in operation["parameters"] if one["in"] == "path"] == re.findall(r"{(\w+)}", entry.path)


def test_logs_are_lines_of_json_without_the_data(server: Served) -> None:
    server.post("/score", {"job": "SECRET-1", "age": "SECRET-2"})
    server.post("/score?SECRET-3=1", {"job": "SECRET-4"})
    server.get("/SECRET-5")
    line = server.wait_for("request", status=404)
    assert line["route"] == "other" and line["level"] == "info" and line["ms"] >= 0 and "T" in line["time"]
    assert not [text for text in server.lines if "SECRET" in text]


# Limits, tokens and what else is given on the command line.


def test_limits(files: Path) -> None:
    limits = ("--max-body", "2000", "--max-rows", "3", "--max-depth", "3", "--timeout", "0.5", "--max-connections", "2", "--strict")
    with Served(files / "people.acx", *limits) as server:
        assert server.post("/score", [ROW] * 3).status == 200
        rows = server.post("/score", [{}] * 4)
        assert rows.status == 413 and "4 rows, of at most 3" in rows.json["error"]
        for body in (b" " * 2_001, b" " * 3_000_000):
            long = server.post("/score", body)
            assert long.status == 413 and "longer than 2,000 bytes" in long.json["error"]
        chunk = b"%x\r\n" % 1_500 + b" " * 1_500 + b"\r\n"
        chunked = b"POST /score HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + 2 * chunk + b"0\r\n\r\n"
        with server.connect() as line:
            line.sendall(chunked)
            assert line.recv(100).startswith(b"HTTP/1.1 413")
        assert "nested" in server.post("/score", [{"tags": [[1]]}]).json["error"]
        strict = server.post("/score", {**ROW, "agee": 1})
        assert strict.status == 422 and "'agee'" in strict.json["error"]
        # Slow clients: one that never sends its headers, and one that never sends its body.
        assert server.raw(b"GET /healthz HTT").startswith(b"HTTP/1.1 408")
        slow = server.raw(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert slow.startswith(b"HTTP/1.1 408") and b"did not arrive within 0.5 seconds" in slow
        with server.connect(), server.connect():
            busy = server.get("/healthz")
            assert busy.status == 503 and busy.headers["retry-after"] == "1"


def test_a_token_opens_all_but_probes(files: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    with Served(files / "people.acx", "--token-file", tmp_path / "token", env={"AUTOCROSS_TOKEN": "another"}) as server:
        assert server.post("/score", ROW, Authorization="Bearer s3cret").status == 200
        for wrong in ({}, {"Authorization": "Bearer s3cres"}, {"Authorization": "Basic s3cret"}, {"Authorization": "Bearer "}):
            refused = server.post("/score", ROW, **wrong)
            assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert server.get("/metrics").status == 401 and server.get("/models").status == 401
        assert server.get("/healthz").status == server.get("/readyz").status == server.get("/ping").status == 200
        assert not [line for line in server.lines if "s3cre" in line]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.acx"], "Cannot read 'nothing.acx': No such file or directory"),
        (["broken.acx"], "Cannot load 'broken.acx'"),
        (["bad name=people.acx"], "'bad name' cannot be part of an address"),
        (["people.acx", "people.acx"], "Two of the models have one name and one version"),
        (["people.acx", "--port", "70000"], "--port 70000 is out of range"),
        (["people.acx", "--host", "192.0.2.1"], "Cannot serve on 192.0.2.1"),
        (["people.acx", "--max-rows", "0"], "--max-rows 0 is out of range"),
        (["people.acx", "--timeout", "nan"], "--timeout nan is out of range"),
        (["people.acx", "--workers", "0"], "--workers 0 is out of range"),
        (["people.acx", "--token-file", "empty"], "--token-file 'empty' holds no token"),
        (["people.acx", "--token-file", "absent"], "Cannot read --token-file 'absent'"),
    ],
    ids=str,
)
def test_a_server_that_cannot_start_says_why(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(files / "people.acx", "people.acx")
    Path("broken.acx").write_bytes(b"no model")
    Path("empty").touch()
    assert run(["serve", *arguments, *([] if "--port" in arguments else ["--port", "0"])]) == 2
    assert message in capsys.readouterr().err


def test_a_taken_port_is_told(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["serve", str(files / "people.acx"), "--port", str(port)]) == 2
    assert f"Cannot serve on 127.0.0.1, port {port}: Address already in use" in capsys.readouterr().err


# New files, and the end.


class Load(threading.Thread):
    """Asks all the time, on one connection, and keeps what is not answered well."""

    def __init__(self, server: Served) -> None:
        super().__init__(daemon=True)
        self.server, self.done, self.faults, self.versions = server, threading.Event(), [], []
        self.start()

    def run(self) -> None:
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=WAIT)
        while not self.done.is_set():
            try:
                line.request("POST", "/score", json.dumps(ROW))
                answer = line.getresponse()
                found = json.loads(answer.read())
                self.versions.append((found["version"], found["probability"]))
            except Exception as error:  # whatever it is, the test must see it
                self.faults.append(repr(error))
        line.close()


def test_a_new_file_takes_over_without_a_failed_request(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.acx"
    shutil.copy(files / "people.acx", path)
    scores = {load(files / name).score_one(ROW) for name in ("people.acx", "fewer.acx")}
    with Served(path, "--watch", "0.05") as server:
        loads = [Load(server) for _ in range(2)]
        for name in ("fewer.acx", "people.acx", "fewer.acx"):
            shutil.copy(files / name, tmp_path / "new")
            os.replace(tmp_path / "new", path)
            before = server.wait_for("reloaded")["before"]
        path.write_bytes(b"no model")
        failed = server.wait_for("reload_failed")
        assert failed["kept"] != before[:12] and server.get("/readyz").status == 200
        path.unlink()
        server.wait_for("reload_failed")
        for load_on in loads:
            load_on.done.set()
            load_on.join(WAIT)
        assert [load_on.faults for load_on in loads] == [[], []]
        seen = {*loads[0].versions, *loads[1].versions}
        assert len(seen) == 2 and {score for _, score in seen} == scores
        assert b'autocross_reloads_total{model="model",result="loaded"} 3' in server.get("/metrics").body


def test_a_signal_loads_files_anew(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.acx"
    shutil.copy(files / "people.acx", path)
    with Served(path, "--watch", "0") as server:
        old = server.get("/models/model").json["hash"]
        shutil.copy(files / "fewer.acx", tmp_path / "new")
        os.replace(tmp_path / "new", path)
        server.process.send_signal(signal.SIGHUP)
        assert server.wait_for("reloaded")["before"] == old
        assert server.post("/score", ROW).json["probability"] == load(files / "fewer.acx").score_one(ROW)


def test_a_request_that_has_begun_is_answered_before_the_end(files: Path) -> None:
    server = Served(files / "people.acx")
    body = json.dumps(ROW).encode()
    with server.connect() as line, server.connect() as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200")
        line.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert line.recv(100).startswith(b"HTTP/1.1 100")  # now the server waits for the body
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_for("stopping")["requests"] == 1
        line.sendall(body)
        assert b"HTTP/1.1 200" in read_all(line)
    assert server.stop() == 0
    assert server.process.stderr is not None
    server.process.stderr.close()


def test_several_processes_share_a_port(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.acx"
    shutil.copy(files / "people.acx", path)
    with Served(path, "--workers", "2", "--watch", "0") as server:
        server.wait_for("listening")
        expected = load(path).score_one(ROW)
        assert {server.post("/score", ROW).json["probability"] for _ in range(40)} == {expected}
        assert b'autocross_requests_total{route="/score",status="200"} 40' in server.get("/metrics").body  # of both
        shutil.copy(files / "fewer.acx", tmp_path / "new")
        os.replace(tmp_path / "new", path)
        server.process.send_signal(signal.SIGHUP)
        pids = {server.wait_for("reloaded")["pid"] for _ in range(2)}
        assert len(pids) == 2
        os.kill(min(pids), signal.SIGKILL)
        assert server.wait_for("worker_died")["code"] == -signal.SIGKILL
        server.wait_for("listening")
        assert server.post("/score", ROW).status == 200


def test_a_worker_that_cannot_load_its_model_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "broken.acx").write_bytes(b"no model")
    command = [sys.executable, "-m", "autocross", "serve", str(tmp_path / "broken.acx"), "--port", "0", "--workers", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert ended.returncode == 2 and "error: Cannot load" in ended.stderr and "Traceback" not in ended.stderr


def test_the_image_starts_a_server_as_it_says() -> None:
    lines = (Path(__file__).parents[1] / "examples" / "Dockerfile").read_text().splitlines()
    entry, command = (json.loads(line.partition(" ")[2]) for line in lines if line.startswith(("ENTRYPOINT", "CMD")))
    function, bound, _ = app.parse_args([*entry[1:], *command])
    assert entry[0] == "autocross" and function.__name__ == "serve"
    assert bound.arguments["model"] in next(line for line in lines if line.startswith("COPY"))
    assert (bound.arguments["host"], bound.arguments["port"]) == ("0.0.0.0", 8080)
