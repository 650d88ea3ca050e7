"""The OpenAPI document of the server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import autocross

CELL = {"type": ["string", "number", "boolean", "null"]}
ROW = {
    "type": "object",
    "description": "A value for each column. An absent column counts as missing. A column of several values may have a list.",
    "additionalProperties": {"anyOf": [CELL, {"type": "array", "items": CELL}]},
}
ROWS = {"oneOf": [{"$ref": "#/components/schemas/Row"}, {"type": "array", "items": {"$ref": "#/components/schemas/Row"}}]}
PROBABILITY = {"type": "number", "minimum": 0, "maximum": 1}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "row": {"type": "integer"}, "field": {"type": "string"}},
}
TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "datatype": {"type": "string"},
        "data": {"type": "array"},
    },
}
BODIES: dict[str, Any] = {
    "score": {"application/json": {"schema": ROWS}},
    "explain": {"application/json": {"schema": ROWS}},
    "infer": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["inputs"],
                "properties": {
                    "id": {"type": "string"},
                    "inputs": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Tensor"}},
                },
            }
        }
    },
    "invocations": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "dataframe_split": {"type": "object"},
                    "dataframe_records": {"type": "array", "items": {"$ref": "#/components/schemas/Row"}},
                    "instances": {"type": "array"},
                    "inputs": {"type": ["array", "object"]},
                },
            }
        },
        "text/csv": {"schema": {"type": "string"}},
    },
}
ANSWERS: dict[str, Any] = {
    "score": {
        "type": "object",
        "required": ["model", "version"],
        "properties": {
            "probability": PROBABILITY,
            "probabilities": {"type": "array", "items": PROBABILITY},
            "model": {"type": "string"},
            "version": {"type": "string"},
        },
    },
    "invocations": {
        "type": "object",
        "required": ["predictions"],
        "properties": {"predictions": {"type": "array", "items": PROBABILITY}},
    },
}
OPTIONS = [
    {"name": "by", "in": "query", "schema": {"type": "string", "enum": ["column", "term", "field"], "default": "column"}},
    {"name": "top", "in": "query", "schema": {"type": "integer", "minimum": 0, "default": 5}},
]
TEXTS = ("/metrics", "/ping", "/health", "/version")


def document(routes: Iterable[tuple[str, str, str, bool]]) -> dict[str, Any]:
    """The document, from method, path and meaning of each route, and whether it needs no token."""
    paths = {path: {method.lower(): operation(path, about, is_open)} for method, path, about, is_open in routes}
    return {
        "openapi": "3.1.0",
        "info": {"title": "autocross", "version": autocross.__version__, "description": "Scores and reasons of saved models."},
        "paths": paths,
        "components": {
            "schemas": {"Row": ROW, "Error": ERROR, "Tensor": TENSOR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def operation(path: str, about: str, is_open: bool) -> dict[str, Any]:
    """One route."""
    last = path.rpartition("/")[2]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in re.findall(r"{(\w+)}", path)
    ]
    content = (
        {"text/plain": {"schema": {"type": "string"}}}
        if path in TEXTS
        else {"application/json": {"schema": ANSWERS.get(last, {"type": "object"})}}
    )
    refused = {
        "description": "Refused, and why.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    found: dict[str, Any] = {
        "summary": about,
        "operationId": re.sub(r"\W+", "_", path).strip("_"),
        "parameters": parameters + (OPTIONS if last == "explain" else []),
        "responses": {"200": {"description": "The answer.", "content": content}, "4XX": refused, "5XX": refused},
    }
    if last in BODIES:
        found["requestBody"] = {"required": True, "content": BODIES[last]}
    if not is_open:
        found["security"] = [{}, {"token": []}]
    return found
