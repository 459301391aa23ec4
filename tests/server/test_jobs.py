"""Who runs, who waits, who is stopped: with an engine that does what the test says."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from lily.errors import DeviceError, ModelError, OutOfMemory

from .http import Reply, chat, read_all, read_until
from .processes import wait_until
from .scripted import Call, ScriptedEngine, ScriptedServer


def in_thread(call, *arguments, **options):
    """Call in a thread; the function that this returns waits for the result."""
    found: list[Reply] = []
    thread = threading.Thread(target=lambda: found.append(call(*arguments, **options)))
    thread.start()

    def result() -> Reply:
        thread.join(timeout=60)
        return found[0]

    return result


def refuses(server: ScriptedServer) -> bool:
    """Whether nobody can connect any more."""
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_full_queue_refuses_and_the_others_finish(scripted):
    server = scripted(parallel=1, queue=1)
    first = in_thread(server.chat)
    wait_until(lambda: server.metric("lily_running") == 1, "one runs")
    second = in_thread(server.chat)
    wait_until(lambda: server.metric("lily_waiting") == 1, "one waits")
    third = server.chat()
    assert third.status == 503
    assert third.headers["retry-after"] == "1"
    assert third.error == {
        "message": "2 requests run or wait, expected at most 2",
        "type": "overloaded_error",
        "param": None,
        "code": "queue_full",
    }
    for index, text in enumerate(("one", "two")):
        server.engine.call(index).say(text)
        server.engine.call(index).end()
    assert first().json["choices"][0]["message"]["content"] == "one"
    assert second().json["choices"][0]["message"]["content"] == "two"
    wait_until(lambda: server.metric("lily_running") == 0, "none runs")
    assert server.metric("lily_waiting") == 0


def test_first_come_first_served(scripted):
    order = []
    server = scripted(lambda call: order.append(call.prompt[0]["content"]), parallel=1, queue=8)
    results = []
    for index in range(5):
        results.append(in_thread(server.chat, f"job {index}"))
        server.engine.call(index)  # prepared, hence in the queue
    for index in range(5):
        server.engine.call(index).end()
    assert [result().status for result in results] == [200] * 5
    assert order == [f"job {index}" for index in range(5)]


def test_a_stream_begins_while_the_prompt_is_computed_and_shows_life(scripted):
    server = scripted(keep_alive_s=0.05)
    connection = server.send(chat(stream=True))
    got = read_until(connection, b": keep-alive\n\n")
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"delta":{"role":"assistant","content":""}' in got
    server.engine.call().say("fox")
    server.engine.call().end()
    assert b'"content":"fox"' in read_until(connection, b"data: [DONE]\n\n")
    connection.close()


def test_a_waiting_stream_shows_life_too(scripted):
    server = scripted(keep_alive_s=0.05, parallel=1)
    first = server.send(chat(stream=True))
    wait_until(lambda: server.metric("lily_running") == 1, "one runs")
    second = server.send(chat(stream=True))
    read_until(second, b": keep-alive\n\n")
    assert server.metric("lily_waiting") == 1
    second.close()  # a job that waits is stopped like one that runs
    wait_until(lambda: server.metric("lily_waiting") == 0, "it has left the queue")
    server.engine.call().end()
    read_until(first, b"[DONE]")
    first.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["prompt", "answer"])
def test_a_client_that_leaves_stops_its_job(scripted, stream, phase):
    server = scripted()
    connection = server.send(chat(stream=stream))
    call = server.engine.call()
    if phase == "answer":
        call.say("some", "text")
        wait_until(lambda: call.produced == 2, "two tokens")
    connection.close()
    assert call.ended.wait(60)
    assert call.produced == (2 if phase == "answer" else 0)
    wait_until(lambda: server.metric("lily_running") == 0, "none runs")


def test_a_reset_connection_stops_its_job(scripted):
    server = scripted()
    connection = server.send(chat(stream=True))
    call = server.engine.call()
    read_until(connection, b"assistant")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert call.ended.wait(60)


def test_a_client_that_reads_slowly_slows_its_own_answer_only(scripted):
    server = scripted(send_timeout_s=60)
    connection = server.send(chat(stream=True), receive_bytes=1 << 18)
    call = server.engine.call()
    piece = "x" * 100_000
    call.say(*[piece] * 200)  # 20 MB, far over all buffers
    read_until(connection, b"assistant")
    wait_until(lambda: call.produced >= 32, "what the queue holds")
    other = in_thread(server.chat)
    server.engine.call(1).say("quick")
    server.engine.call(1).end()
    assert other().json["choices"][0]["message"]["content"] == "quick"
    assert call.produced < 200
    call.end()
    got = read_until(connection, b"data: [DONE]\n\n")
    assert got.count(piece.encode()) == 200
    connection.close()


def test_a_client_that_reads_nothing_is_dropped(scripted):
    server = scripted(send_timeout_s=0.2)
    connection = server.send(chat(stream=True), receive_bytes=1 << 18)
    call = server.engine.call()
    call.say(*["x" * 100_000] * 200)
    assert call.ended.wait(60)
    assert b"[DONE]" not in read_all(connection)
    connection.close()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DeviceError("the device failed at layer 3"), 500, "device_error"),
        (OutOfMemory("no room for a session"), 503, "out_of_memory"),
        (RuntimeError("SECRET"), 500, "internal_error"),
    ],
)
def test_an_error_before_the_answer_is_a_status_and_within_it_an_event(
    scripted, caplog, error, status, code
):
    def script(call: Call) -> None:
        call.say("begun")
        call.fail(error)

    server = scripted(script)
    whole = server.chat()
    assert (whole.status, whole.error["code"]) == (status, code)
    streamed = server.chat(stream=True)
    assert streamed.status == 200
    assert streamed.events[1]["choices"][0]["delta"] == {"content": "begun"}
    assert streamed.events[-1]["error"] == whole.error  # and no [DONE]
    assert "SECRET" not in whole.body.decode() + streamed.body.decode() + caplog.text
    server.engine.calls.clear()
    after = in_thread(server.post, "/v1/completions", {"prompt": "x"})
    server.engine.call()
    after()


def test_a_refused_job_is_a_status_in_a_stream_too(scripted):
    server = scripted()
    for stream in (False, True):
        reply = server.post("/v1/completions", {"prompt": "refuse me", "stream": stream})
        assert reply.status == 400
        assert reply.error["message"] == "the prompt is not liked"
    assert server.metric("lily_waiting") == 0


def test_an_answer_that_takes_too_long_is_ended(scripted):
    server = scripted(request_timeout_s=0.2)
    whole = server.chat()
    assert (whole.status, whole.error["code"]) == (504, "timeout")
    streamed = server.chat(stream=True)
    assert streamed.events[-1]["error"]["code"] == "timeout"
    assert all(call.ended.wait(60) for call in server.engine.calls)


def test_the_idle_model_leaves_the_memory_and_comes_back(scripted):
    server = scripted(lambda call: call.end(), idle_unload_s=0.1)
    first = server.engine
    wait_until(lambda: first.closed, "unloaded")
    wait_until(lambda: server.get("/health").json["model"] == "unloaded", "says so")
    assert server.get("/health").status == 200
    assert server.get("/v1/models").json["data"][0]["context_length"] == 100
    assert len(server.engines) == 1
    assert server.chat().status == 200
    assert len(server.engines) == 2
    assert [call.prompt[0]["content"] for call in server.engine.calls] == ["Hi"]


def test_the_model_stays_while_it_is_used(scripted):
    server = scripted(idle_unload_s=0.05, keep_alive_s=0.2)
    connection = server.send(chat(stream=True))
    for _ in range(2):  # silent for eight times the idle time
        read_until(connection, b": keep-alive")
    assert not server.engine.closed
    server.engine.call().end()
    read_until(connection, b"[DONE]")
    wait_until(lambda: server.engine.closed, "unloaded")
    connection.close()


def test_health_and_requests_while_loading(scripted):
    go = threading.Event()

    def load():
        go.wait(60)
        return ScriptedEngine(lambda call: call.end())

    server = scripted(load=load, wait=False)
    health = server.get("/health")
    assert (health.status, health.json["status"]) == (503, "loading")
    assert health.headers["retry-after"] == "1"
    for reply in (server.chat(), server.get("/v1/models")):
        assert (reply.status, reply.error["code"]) == (503, "model_loading")
        assert reply.headers["retry-after"] == "1"
    go.set()
    wait_until(lambda: server.get("/health").status == 200, "ready")
    assert server.chat().status == 200


def test_stopping_fails_what_runs_and_refuses_the_rest(scripted):
    server = scripted(grace_s=0.3)
    streams = [server.send(chat(stream=True)) for _ in range(2)]
    whole = in_thread(server.chat)
    for index in range(3):
        server.engine.call(index)
    server.engine.call(0).say("half an")
    read_until(streams[0], b"half an")
    server.server.should_exit = True
    for stream in streams:
        got = read_all(stream)
        assert b'"code":"shutting_down"' in got
        assert b"[DONE]" not in got
        stream.close()
    assert whole().error["code"] == "shutting_down"
    server.stop()
    assert all(call.ended.is_set() for call in server.engine.calls)
    assert server.engine.closed


def test_what_ends_within_the_grace_time_is_whole(scripted):
    server = scripted(grace_s=30)
    connection = server.send(chat(stream=True))
    call = server.engine.call()
    read_until(connection, b"assistant")
    server.server.should_exit = True
    wait_until(lambda: refuses(server), "no new connections")
    call.say("to the end")
    call.end()
    got = read_all(connection)
    assert b'"content":"to the end"' in got
    assert b"data: [DONE]\n\n" in got
    connection.close()


def test_choices_are_made_one_after_another(scripted):
    server = scripted(lambda call: (call.say("a"), call.end()), parallel=1, queue=0)
    reply = server.chat(n=3, seed=5)
    assert [choice["index"] for choice in reply.json["choices"]] == [0, 1, 2]
    assert [call.options["seed"] for call in server.engine.calls] == [5, 6, 7]
    streamed = server.chat(n=2, stream=True).events
    ends = [e["choices"][0] for e in streamed[:-1] if e["choices"][0]["finish_reason"]]
    assert [(end["index"], end["finish_reason"]) for end in ends] == [(0, "stop"), (1, "stop")]


def test_scripted_engine_is_closed_with_the_server(scripted):
    server: ScriptedServer = scripted()
    server.stop()
    assert server.engine.closed


def test_the_server_ends_while_a_model_is_still_loading(scripted):
    for_ever = threading.Event()
    server: ScriptedServer = scripted(load=for_ever.wait, wait=False)
    assert server.get("/health").json["status"] == "loading"
    server.stop()
    for_ever.set()


def test_a_model_that_cannot_be_loaded_is_told_without_its_path(scripted):
    def load():
        raise ModelError("/secret/folder holds no model")

    server: ScriptedServer = scripted(load=load, wait=False)
    wait_until(lambda: server.get("/health").json["status"] == "failed", "failed")
    assert server.get("/health").status == 503
    reply = server.chat()
    assert (reply.status, reply.error["code"]) == (503, "model_not_loaded")
    assert "secret" not in reply.body.decode()
    [failure] = server.failures
    assert isinstance(failure, ModelError)
