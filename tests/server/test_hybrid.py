"""The model lily/hybrid: whole and streamed, what ran where, consent, and clients that go away."""

from __future__ import annotations

import json
import threading

import openai
import pytest
from lily.gate.settings import parse
from lily.hybrid import HybridSettings
from lily.hybrid.settings import PlannerSettings

from tests.gate.scripted import Scripted
from tests.hybrid.parts import script
from tests.hybrid.planner import Fail, Say, ScriptedPlanner, Use

from .http import chat, read_until
from .processes import ServerProcess, wait_until

MAIL = "ann@example.org"
ASKS = 'categories.email = {untrusted = "ask"}'


def worker(call):
    """The scripted engine says this."""
    call.say("All is ", "well.")
    call.end()


@pytest.fixture
def hybrid(scripted, monkeypatch):
    """Makes a server with a scripted planner, gate and worker."""
    monkeypatch.setattr("lily.server.app.BuiltIn", lambda country: Scripted())

    def made(planner=None, *, gate="", engine=worker, local_fallback=True, **options):
        settings = HybridSettings(local_fallback=local_fallback)
        if planner:
            chosen = PlannerSettings(base_url=planner.base_url, model="m", max_retries=0)
            settings = HybridSettings(planner=chosen, local_fallback=local_fallback)
        return scripted(engine, gate=parse(gate), hybrid=settings, **options)

    return made


def ask(text, **fields):
    """A request for the hybrid model."""
    return {"model": "lily/hybrid", "messages": [{"role": "user", "content": text}], **fields}


def test_whole(hybrid):
    """The original is in the answer and a placeholder in what left."""

    def echo(messages):
        return Say(f"Mail {messages[-1]['content'].split()[-1]}.")

    with ScriptedPlanner(echo) as planner:
        said = hybrid(planner).post("/v1/chat/completions", ask(f"Write to {MAIL}")).json
    assert said["choices"][0]["message"]["content"] == f"Mail {MAIL}."
    assert said["model"] == "lily/hybrid"
    routing = said["routing"]
    assert routing["where"] == "planner"
    assert routing["sent_bytes"] == len(planner.bodies[0])
    assert routing["steps"] == [
        {"work": "plans and answers", "where": "planner", "result": "answered"}
    ]
    assert MAIL.encode() not in planner.received[0]


def test_streamed(hybrid):
    """Pieces as they come from the planner; the last event tells what ran where."""
    call = ("ask_worker", {"handles": ["d1"], "request": "How is it?"})
    with ScriptedPlanner(script(Use([call]), Say("So: all is well."))) as planner:
        server = hybrid(planner)
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "The letter says: all is well."},
            {"role": "user", "content": "How is it?"},
        ]
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)
        chunks = list(
            client.chat.completions.create(model="lily/hybrid", messages=messages, stream=True)
        )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "So: all is well."
    assert chunks[-1].choices[0].finish_reason == "stop"
    routing = chunks[-1].routing
    assert [step["where"] for step in routing["steps"]] == ["planner", "this machine", "planner"]
    # What came before the last message is private material: the worker alone reads it.
    assert b"letter" not in b"".join(planner.received)
    assert "The letter says" in server.engine.calls[0].prompt[-1]["content"]


def test_no_planner(hybrid):
    """All is done here and says so; the model is listed only where there is a planner."""
    server = hybrid()
    said = server.post("/v1/chat/completions", ask("Hi")).json
    assert said["choices"][0]["message"]["content"] == "All is well."
    assert said["routing"]["summary"] == "Nothing left this machine."
    assert [each["id"] for each in server.get("/v1/models").json["data"]] == ["scripted"]


def test_listed(hybrid):
    """By its name, too."""
    with ScriptedPlanner(script(Say("x"))) as planner:
        server = hybrid(planner)
        assert [m["id"] for m in server.get("/v1/models").json["data"]] == [
            "scripted",
            "lily/hybrid",
        ]
        assert server.get("/v1/models/lily/hybrid").json["id"] == "lily/hybrid"


def test_sensitive(hybrid):
    """Pinned to this machine."""
    with ScriptedPlanner(script(Say("x"))) as planner:
        said = hybrid(planner).post("/v1/chat/completions", ask("Hi", sensitive=True)).json
        assert not planner.received
    assert said["routing"]["where"] == "this machine"


@pytest.mark.parametrize(("allow", "where"), [(True, "planner"), (False, "this machine")])
def test_consent(hybrid, allow, where):
    """The stream asks, with what would leave; the answer comes by another request."""
    with ScriptedPlanner(script(Say("Done."))) as planner:
        server = hybrid(planner, gate=ASKS)
        connection = server.send({**ask(f"Write to {MAIL}"), "stream": True})
        got = read_until(connection, b'"consent"')
        while b"\n\n" not in got.split(b'"consent"')[1]:
            got += connection.recv(65536)
        question = next(event["routing"]["consent"] for event in events(got) if "routing" in event)
        assert (question["what"], question["destination"]) == ("task", "planner")
        assert question["text"].startswith("Write to [EMAIL_1_")
        assert not planner.received
        answer = {"id": question["id"], "allow": allow}
        assert server.post("/v1/hybrid/consent", answer).json == answer
        rest = list(events(read_until(connection, b"[DONE]")))
        # It was answered: nobody waits any more.
        assert server.post("/v1/hybrid/consent", answer).status == 400
    assert rest[-1]["routing"]["where"] == where
    assert bool(planner.received) == allow


def events(data):
    """JSON of all whole events in the bytes of a stream, wherever its chunks are cut."""
    for line in data.decode().splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def test_nobody_can_be_asked_in_a_whole_answer(hybrid):
    """What would need consent is done here."""
    with ScriptedPlanner(script(Say("x"))) as planner:
        server = hybrid(planner, gate=ASKS)
        said = server.post("/v1/chat/completions", ask(f"Write to {MAIL}")).json
        assert not planner.received
    assert said["routing"]["where"] == "this machine"


FAULTS = {
    "refused": ("sk-abcdefgh1234", Say("x"), 403, "refused_by_gate"),
    "planner": ("Hi", Fail(500), 502, "planner_failed"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(hybrid, fault, stream):
    """Statuses and codes; in a stream too, where nothing was said before."""
    text, reply, status, code = FAULTS[fault]
    with ScriptedPlanner(script(reply)) as planner:
        server = hybrid(planner, local_fallback=False)
        found = server.post("/v1/chat/completions", ask(text, stream=stream))
    assert (found.status, found.error["code"]) == (status, code)
    assert "sk-abcdefgh1234" not in found.error["message"]


def test_a_worker_that_fails(hybrid):
    """Nobody is left to answer."""

    def fail(call):
        call.fail(RuntimeError("out of paper"))

    found = hybrid(engine=fail).post("/v1/chat/completions", ask("Hi"))
    assert (found.status, found.error["code"]) == (500, "worker_failed")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools"),
        ({"regex": "a"}, "regex"),
        ({"n": 2}, "n"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"sensitive": "yes"}, "sensitive"),
    ],
)
def test_what_a_hybrid_run_cannot_do(hybrid, fields, param):
    """Refused by name, before anything is sent."""
    with ScriptedPlanner(script(Say("x"))) as planner:
        found = hybrid(planner).post("/v1/chat/completions", ask("Hi", **fields))
        assert not planner.received
    assert (found.status, found.error["param"]) == (400, param)


def test_what_it_does_not_look_at_is_said(hybrid):
    """In the header that other models use for this."""
    found = hybrid().post("/v1/chat/completions", ask("Hi", temperature=0, max_tokens=3))
    assert found.headers["x-lily-warning"] == "lily/hybrid ignores max_tokens, temperature"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away(hybrid, stream):
    """The worker stops, and nothing of the run is left."""
    server = hybrid(engine=lambda call: None, keep_alive_s=0.05)  # says nothing until cancelled
    connection = server.send({**ask("Hi"), "stream": stream})
    call = server.engine.call()
    assert running()
    connection.close()
    assert call.ended.wait(60)
    wait_until(lambda: not running(), "the run's thread has ended")
    wait_until(lambda: idle(server), "no job is left")


def test_a_client_that_goes_away_when_asked(hybrid):
    """Silence is a no, and a client that is gone is silent: nothing waits for the time-out."""
    with ScriptedPlanner(script(Say("x"))) as planner:
        server = hybrid(planner, gate=ASKS, keep_alive_s=0.05)
        connection = server.send({**ask(f"Write to {MAIL}"), "stream": True})
        read_until(connection, b'"consent"')
        connection.close()
        wait_until(lambda: not running(), "the run's thread has ended")
        assert not planner.received


def test_a_run_that_takes_too_long(hybrid):
    """The worker stops, and the client is told."""
    server = hybrid(engine=lambda call: None, request_timeout_s=0.2)
    found = server.post("/v1/chat/completions", ask("Hi"))
    assert (found.status, found.error["code"]) == (504, "timeout")
    assert server.engine.call().ended.wait(60)


def running():
    """Threads of hybrid runs."""
    return [each for each in threading.enumerate() if each.name.startswith("lily-hybrid")]


def idle(server):
    """Whether no request runs or waits."""
    return server.metric("lily_running") + server.metric("lily_waiting") == 0


def test_places_are_limited(hybrid):
    """Hybrid runs count among the requests that wait."""
    server = hybrid(engine=lambda call: None, parallel=1, queue=0)
    connection = server.send({**ask("Hi"), "stream": True})
    server.engine.call()
    assert server.post("/v1/chat/completions", ask("Hi")).status == 503
    connection.close()


def test_the_command(tmp_path):
    """``lily serve --hybrid-settings``, with the model in the package as the worker."""
    with ScriptedPlanner(script(Say("Paris."))) as planner:
        path = tmp_path / "hybrid.toml"
        path.write_text(
            f'local_fallback = true\n[planner]\nbase_url = "{planner.base_url}"\nmodel = "m"\n'
        )
        options = ("--threads", "1", "--hybrid-settings", str(path))
        with ServerProcess(*options) as server:
            said = server.post("/v1/chat/completions", ask("What?", sensitive=True)).json
            assert not planner.received
            assert said["routing"]["where"] == "this machine"
            assert server.post("/v1/chat/completions", chat("Hi", max_tokens=1)).status == 200
            page = server.get("/openapi.json").json
    assert "/v1/hybrid/consent" in page["paths"]
