"""The protocols that others have clients for: the Open Inference Protocol v2, and MLflow's."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autocross import AutoCrossClassifier, Scorer, load
from served import WAIT, Served

pytestmark = pytest.mark.slow

ROWS = [
    {"job": "nurse", "age": 37.5, "rooms": 2, "born": "1971-03-04", "tags": ["a", "c"]},
    {"job": "cook", "age": None, "rooms": 3, "born": None, "tags": ["b", "d"]},
]
HEADER = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def model(classifier: AutoCrossClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "people.acx"
    classifier.save(path)
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Served]:
    with Served(f"people:3={model}", "--max-rows", "100") as found:
        yield found


@pytest.fixture(scope="module")
def scorer(model: Path) -> Scorer:
    return load(model)


@pytest.fixture(scope="module")
def expected(scorer: Scorer) -> list[float]:
    return [scorer.score_one(row) for row in ROWS]


def tensor(name: str, kind: str = "BYTES", **facts: Any) -> dict[str, Any]:
    """The tensor of a column."""
    return {"name": name, "shape": [len(ROWS)], "datatype": kind, "data": [row[name] for row in ROWS], **facts}


def tensors() -> list[dict[str, Any]]:
    tags = tensor("tags", shape=[2, 2], data=["a", "c", "b", "d"])
    return [tensor("job"), tensor("age", "FP64", shape=[2, 1]), tensor("rooms", "INT64"), tensor("born"), tags]


# The Open Inference Protocol.


def test_the_server_and_its_models_say_what_they_are(server: Served) -> None:
    assert server.get("/v2").json["name"] == "autocross"
    assert server.get("/v2/health/live").status == server.get("/v2/health/ready").status == 200
    for path in ("/v2/models/people", "/v2/models/people/versions/3"):
        facts = server.get(path).json
        assert facts["name"] == "people" and facts["versions"] == ["3"] and facts["platform"] == "autocross"
        assert {"name": "age", "datatype": "FP64", "shape": [-1]} in facts["inputs"]
        assert {"name": "job", "datatype": "BYTES", "shape": [-1]} in facts["inputs"]
        assert facts["outputs"] == [{"name": "probability", "datatype": "FP64", "shape": [-1]}]
        assert server.get(f"{path}/ready").status == 200
    missing = server.get("/v2/models/nobody/ready")
    assert missing.status == 404 and "nobody" in missing.json["error"]


def test_tensors_are_scored_as_rows(server: Served, expected: list[float]) -> None:
    answer = server.post("/v2/models/people/infer", {"id": "a-17", "inputs": tensors(), "outputs": [{"name": "probability"}]})
    assert answer.json == {
        "model_name": "people",
        "model_version": "3",
        "id": "a-17",
        "outputs": [{"name": "probability", "shape": [2], "datatype": "FP64", "data": expected}],
    }
    nested = server.post("/v2/models/people/versions/3/infer", {"inputs": [tensor("tags", shape=[2, 2]), *tensors()[:-1]]})
    assert nested.json["outputs"][0]["data"] == expected and "id" not in nested.json


def test_tensors_may_be_bytes(server: Served, scorer: Scorer) -> None:
    texts = [b"nurse", "köchin".encode()]
    jobs = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    ages = struct.pack("<2d", 37.5, float("nan"))
    head = {
        "inputs": [
            {"name": "job", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(jobs)}},
            {"name": "age", "shape": [2], "datatype": "FP64", "parameters": {"binary_data_size": len(ages)}},
        ],
        "parameters": {"binary_data_output": True},
    }
    start = json.dumps(head).encode()
    answer = server.post("/v2/models/people/infer", start + jobs + ages, **{HEADER: str(len(start))})
    length = int(answer.headers[HEADER.lower()])
    found = struct.unpack("<2d", answer.body[length:])
    assert list(found) == [scorer.score_one({"job": "nurse", "age": 37.5}), scorer.score_one({"job": "köchin"})]
    assert json.loads(answer.body[:length])["outputs"][0]["parameters"] == {"binary_data_size": 16}
    for cut, size in ((len(jobs) - 1, len(start)), (len(jobs), len(start) + 10_000)):
        broken = server.post("/v2/models/people/infer", start + jobs[:cut] + ages, **{HEADER: str(size)})
        assert broken.status in (400, 422) and "error" in broken.json


@pytest.mark.parametrize(
    ("request_body", "message"),
    [
        ([], "The request is no object"),
        ({}, "inputs must be a list of tensors"),
        ({"inputs": []}, "inputs must be a list of tensors"),
        ({"inputs": [1]}, "inputs must be a list of tensors"),
        ({"inputs": [tensor("age", "FP64")], "id": 3}, "id must be a text"),
        ({"inputs": [tensor("age", "FP64")], "outputs": [{"name": "label"}]}, "outputs may only name 'probability'"),
        ({"inputs": [tensor("age", "FP64"), tensor("age", "FP64")]}, "a name of its own"),
        ({"inputs": [tensor("age", "FP64", shape=[3])]}, "Input 'age' has 2 values, but its shape is [3]"),
        ({"inputs": [tensor("age", "FP64", shape=[1, 2, 1])]}, "Input 'age' has the shape [1, 2, 1]"),
        ({"inputs": [tensor("age", "FP64", shape=[-1])]}, "Input 'age' has the shape [-1]"),
        ({"inputs": [tensor("age", "FP128")]}, "Input 'age' has the datatype 'FP128'"),
        ({"inputs": [tensor("job", "FP64")]}, "Input 'job' is FP64, but holds 'nurse'"),
        ({"inputs": [tensor("age")]}, "Input 'age' is BYTES, but holds 37.5"),
        ({"inputs": [tensor("age", "FP64", data=None)]}, "Input 'age' has no list of data"),
        ({"inputs": [tensor("age", "FP64", data=[[1], {}])]}, "Input 'age' is FP64, but holds {}"),
        ({"inputs": [tensor("age", "FP64", parameters={"binary_data_size": 8})]}, "binary_data_size that does not fit"),
        ({"inputs": [tensor("age", "FP64", parameters=[])]}, "binary_data_size that does not fit"),
        ({"inputs": [tensor("age", "FP64"), tensor("job", shape=[1], data=["cook"])]}, "'job' has another number of rows"),
        ({"inputs": [tensor("age", data=["old", "x"])]}, "Row 0: Column 'age' is numerical"),
        ({"inputs": [tensor("age", "FP64", shape=[101], data=[1] * 101)]}, "101 rows, of at most 100"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_tensors_are_refused(server: Served, request_body: Any, message: str) -> None:
    answer = server.post("/v2/models/people/infer", request_body)
    assert 400 <= answer.status < 500 and message in answer.json["error"]


TRITON = """
import sys, json, numpy as np
import tritonclient.http as http
client = http.InferenceServerClient(f"127.0.0.1:{sys.argv[1]}")
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("people")
assert client.get_server_metadata()["name"] == "autocross"
assert client.get_model_metadata("people")["outputs"][0]["name"] == "probability"
found = []
for binary in (True, False):
    inputs = [http.InferInput("job", [2], "BYTES"), http.InferInput("age", [2], "FP64")]
    inputs[0].set_data_from_numpy(np.array(["nurse", "cook"], dtype=object), binary_data=binary)
    inputs[1].set_data_from_numpy(np.array([37.5, 20.0]), binary_data=binary)
    outputs = [http.InferRequestedOutput("probability", binary_data=binary)]
    answer = client.infer("people", inputs, outputs=outputs, request_id="7")
    assert answer.get_response()["id"] == "7"
    found.append(answer.as_numpy("probability").tolist())
print(json.dumps(found))
try:
    client.infer("nobody", inputs)
except Exception as error:
    assert "There is no model 'nobody'" in str(error), error
else:
    raise AssertionError("no error")
"""


def outcome(code: str, server: Served) -> Any:
    """What a client prints. It runs in a process of its own, because libraries of clients warn and patch."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(server.port)], capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.skipif(find_spec("tritonclient") is None, reason="the client of Triton is not installed")
def test_the_client_of_triton_gets_its_answers(server: Served, scorer: Scorer) -> None:
    rows = [{"job": "nurse", "age": 37.5}, {"job": "cook", "age": 20.0}]
    assert outcome(TRITON, server) == [[scorer.score_one(row) for row in rows]] * 2


# MLflow.


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_records": ROWS},
        {"dataframe_split": {"columns": [*ROWS[0]], "index": [0, 1], "data": [[*row.values()] for row in ROWS]}},
        {"instances": ROWS, "params": {}},
        {"inputs": ROWS},
        {"inputs": {name: [row[name] for row in ROWS] for name in ROWS[0]}},
    ],
    ids=lambda body: next(iter(body)),
)
def test_every_form_of_a_table_is_scored(server: Served, expected: list[float], body: Any) -> None:
    answer = server.post("/invocations", body, Content_Type="application/json; charset=utf-8")
    assert answer.json == {"predictions": expected}


def test_nan_is_a_missing_value(server: Served, scorer: Scorer) -> None:
    """MLflow's own client writes it."""
    answer = server.post("/invocations", '{"inputs": [{"age": NaN, "job": "NaN"}]}', Content_Type="application/json")
    assert answer.json == {"predictions": [scorer.score_one({})]}
    infinite = server.post("/invocations", '{"inputs": [{"age": -Infinity}]}', Content_Type="application/json")
    assert infinite.status == 400 and "-Infinity" in infinite.json["message"]


def test_csv_is_scored(server: Served, scorer: Scorer) -> None:
    table = 'job,age,born\r\nnurse,37.5,1971-03-04\r\n"co""ok",,\r\n'
    rows = [{"job": "nurse", "age": 37.5, "born": "1971-03-04"}, {"job": 'co"ok'}]
    answer = server.post("/invocations", table, Content_Type="text/csv")
    assert answer.json == {"predictions": [scorer.score_one(row) for row in rows]}


@pytest.mark.parametrize(
    ("body", "kind", "status", "message"),
    [
        ("{}", "text/plain", 415, "The content type 'text/plain' is not known"),
        ("{}", "", 415, "Send application/json or text/csv"),
        ("{}", "application/json", 400, "exactly one of: dataframe_split"),
        ("[]", "application/json", 400, "exactly one of"),
        ('{"inputs": [], "instances": []}', "application/json", 400, "exactly one of"),
        ('{"inputs": 3}', "application/json", 422, "inputs must be a list of rows"),
        ('{"inputs": {"a": [1], "b": [1, 2]}}', "application/json", 422, "all of one length"),
        ('{"inputs": {"a": 1}}', "application/json", 422, "all of one length"),
        ('{"dataframe_split": []}', "application/json", 422, "the lists columns and data"),
        ('{"dataframe_split": {"columns": ["a", "a"], "data": []}}', "application/json", 422, "each one once"),
        ('{"dataframe_split": {"columns": ["a"], "data": [[1], [1, 2]]}}', "application/json", 422, "Row 1 must be a list of 1"),
        ('{"dataframe_records": [{"age": "old"}]}', "application/json", 422, "Column 'age' is numerical"),
        ('{"instances": [[1]]}', "application/json", 422, "instances has rows without names"),
        ("", "text/csv", 422, "The first line must name the columns"),
        ("a,a\n1,2\n", "text/csv", 422, "each one once"),
        ("a,b\n1\n", "text/csv", 422, "Row 0 has 1 cells, but there are 2 columns"),
        ('a\n"x', "text/csv", 400, "no CSV"),
        (b"a\n\xff\n", "text/csv", 400, "not UTF-8"),
        ("a\n" + "1\n" * 101, "text/csv", 413, "of at most 100"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_tables_are_refused(server: Served, body: Any, kind: str, status: int, message: str) -> None:
    answer = server.post("/invocations", body, Content_Type=kind)
    assert answer.status == status and message in answer.json["message"]
    assert answer.json["error_code"] == "BAD_REQUEST"


MLFLOW = """
import sys, json, pandas as pd
from mlflow.pyfunc.scoring_server.client import ScoringServerClient
client = ScoringServerClient("127.0.0.1", int(sys.argv[1]))
client.ping()
assert client.get_version()
table = pd.DataFrame({"job": ["nurse", None], "age": [37.5, float("nan")], "rooms": [2, 3]})
print(json.dumps(json.loads(client.invoke(table).to_json())["predictions"]))
"""


@pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow is not installed")
def test_the_client_of_mlflow_gets_its_answers(server: Served, scorer: Scorer) -> None:
    rows = [{"job": "nurse", "age": 37.5, "rooms": 2}, {"rooms": 3}]
    assert outcome(MLFLOW, server) == [scorer.score_one(row) for row in rows]


def test_probes_of_mlflow(server: Served) -> None:
    assert server.get("/ping").status == server.get("/health").status == 200
    assert server.get("/version").body.decode().startswith("0.")
