"""Requests made up from the OpenAPI page: whatever is sent, the server answers as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks

from .processes import ServerProcess

# Small, so that an answer of any length is short.
EXAMPLES = 30
_OPTIONS = ("--threads", "1", "--max-context", "64", "--request-timeout", "30")


@pytest.fixture(scope="module")
def small() -> Iterator[ServerProcess]:
    with ServerProcess(*_OPTIONS) as server:
        yield server


@pytest.fixture(scope="module")
def document(small: ServerProcess) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(small.url + "/openapi.json")


def check(case: schemathesis.Case) -> None:
    """Send it; the status, the type and the body must be what the page says."""
    response = case.call(timeout=60)
    wanted = [
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    case.validate_response(response, checks=wanted)
    assert response.status_code != 500
    if response.status_code == 400:
        error = json.loads(response.content)["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
        ("POST", "/v1/gate"),
        ("POST", "/v1/hybrid/consent"),
        ("GET", "/v1/models/{name}"),
    ],
)
def test_whatever_is_sent(small, document, method, path, mode):
    operation = document[path][method]
    if mode is GenerationMode.NEGATIVE and method == "GET":
        return  # every name is a string

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        check(case)

    send()
    assert small.process.poll() is None


def test_endpoints_without_choices(document):
    for path in ("/v1/models", "/health", "/metrics"):
        check(document[path]["GET"].Case())
    check(document["/v1/embeddings"]["POST"].Case())
