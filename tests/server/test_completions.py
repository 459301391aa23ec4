"""Text completions, models, tokens, and what is not there."""

from __future__ import annotations

import json

import openai
import pytest


def ask(client, prompt, **fields):
    base = {"model": "lily-tiny", "prompt": prompt, "temperature": 0, "max_tokens": 12}
    return client.completions.create(**{**base, **fields})


def test_the_answer_is_the_engines(client, engine):
    wanted = engine.generate("Once upon a time", temperature=0, max_tokens=12)
    answer = ask(client, "Once upon a time")
    assert answer.choices[0].text == wanted.text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == wanted.usage.prompt_tokens
    streamed = list(ask(client, "Once upon a time", stream=True))
    assert "".join(chunk.choices[0].text for chunk in streamed) == wanted.text
    assert [c.choices[0].finish_reason for c in streamed if c.choices[0].finish_reason] == [
        "length"
    ]


def test_token_ids_and_several_prompts(client, engine):
    ids = engine.tokenize("Once upon a time")
    one = ask(client, "Once upon a time").choices[0].text
    assert ask(client, ids).choices[0].text == one
    two = ask(client, "The king").choices[0].text
    many = ask(client, ["Once upon a time", "The king"], n=2)
    assert [(c.index, c.text) for c in many.choices] == [(0, one), (1, one), (2, two), (3, two)]
    assert many.usage.completion_tokens == 48
    assert ask(client, [ids, engine.tokenize("The king")]).choices[1].text == two


def test_echo(client, engine):
    text = ask(client, "Once upon").choices[0].text
    assert ask(client, "Once upon", echo=True).choices[0].text == "Once upon" + text
    echoed = ask(client, engine.tokenize("Once upon"), echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in echoed) == "Once upon" + text


def test_logprobs(client):
    whole = ask(client, "Once upon", logprobs=2).choices[0]
    said = whole.logprobs
    assert "".join(said.tokens) == whole.text
    assert said.text_offset == [
        sum(len(token) for token in said.tokens[:n]) for n in range(len(said.tokens))
    ]
    assert [len(top) for top in said.top_logprobs] == [2] * 12
    tokens, offsets = [], []
    for chunk in ask(client, "Once upon", logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            tokens += chunk.choices[0].logprobs.tokens
            offsets += chunk.choices[0].logprobs.text_offset
    assert (tokens, offsets) == (said.tokens, said.text_offset)


def test_models(client, server):
    [model] = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("lily-tiny", "model", "lily")
    assert model.context_length == model.max_model_len == 8192
    assert client.models.retrieve("lily-tiny").id == "lily-tiny"
    missing = server.get("/v1/models/other/name")
    assert (missing.status, missing.error["code"]) == (404, "not_found")


def test_no_embeddings(client):
    with pytest.raises(openai.APIStatusError) as refused:
        client.embeddings.create(model="lily-tiny", input="x")
    assert refused.value.status_code == 501
    assert refused.value.body["code"] == "not_supported"


def test_tokenize(server, engine):
    text = "Grüße <|im_end|> 🦊"
    for name in ("content", "prompt"):
        reply = server.post("/tokenize", {name: text}).json
        assert reply["tokens"] == engine.tokenize(text)
        assert reply["count"] == len(reply["tokens"])
        assert reply["max_model_len"] == 8192
    special = server.post("/tokenize", {"content": "<|im_end|>", "special": True}).json
    assert special["count"] == 1
    messages = [{"role": "user", "content": "Hi"}]
    chat = server.post("/tokenize", {"messages": messages}).json
    asked = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1}).json
    assert chat["count"] == asked["usage"]["prompt_tokens"]
    back = server.post("/detokenize", {"tokens": engine.tokenize(text)}).json
    assert back["content"] == back["prompt"] == text


def test_refusals(server):
    for body, param in (
        ({}, "prompt"),
        ({"prompt": "a", "content": "b"}, "prompt"),
        ({"content": 5}, "content"),
    ):
        reply = server.post("/tokenize", body)
        assert (reply.status, reply.error["param"]) == (400, param)
    for tokens, param in (([-1], "tokens[0]"), ([0, 10**9], "tokens[1]"), (["a"], "tokens[0]")):
        reply = server.post("/detokenize", {"tokens": tokens})
        assert (reply.status, reply.error["param"]) == (400, param)
    for body, param in (
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": []}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "x", "n": 17}, "n"),
    ):
        reply = server.post("/v1/completions", body)
        assert (reply.status, reply.error["param"]) == (400, param), body


def test_openapi_names_every_endpoint(server):
    document = json.loads(server.get("/openapi.json").body)
    assert {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/v1/embeddings",
        "/health",
        "/metrics",
        "/tokenize",
        "/detokenize",
    } <= set(document["paths"])
    page = server.get("/docs").body.decode()
    assert "POST /v1/chat/completions" in page
    assert "http" not in page  # no outside resource


def test_metrics_count_and_hold_no_text(server):
    before = server.metric("lily_completion_tokens_total")
    prompts = server.metric("lily_prompt_tokens_total")
    body = server.chat("Zanzibar").json
    assert (
        server.metric("lily_completion_tokens_total") - before == body["usage"]["completion_tokens"]
    )
    assert server.metric("lily_prompt_tokens_total") - prompts == body["usage"]["prompt_tokens"]
    server.get("/secret/path")
    text = server.get("/metrics").body.decode()
    assert 'lily_requests_total{path="other",status="404"}' in text
    assert "secret" not in text
