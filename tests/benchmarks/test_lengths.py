"""`bench lengths`: engines that stay, ratios, peers that fail, and what the device holds.

The peers are small programs that speak the protocol of `bench/llama_resident.cpp`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from lily.hub import shipped_model

from bench import __main__ as command
from bench import harness, lengths_table
from bench.lengths import memory
from bench.machine import ROOT
from bench.resident import Resident

PEER = """#!{python}
import json, sys
print(json.dumps({{"about": "llama.cpp, CUDA : USE_GRAPHS = 1"}}), flush=True)
for line in sys.stdin:
    prompt, decode, number = map(int, line.split())
    {behaviour}
    found = {{"prefill_s": prompt / 1000, "decode_s": decode / 100, "replayed_steps": {replayed}}}
    print(json.dumps(found), flush=True)
"""


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    """Run the benchmark on the packaged model beside a peer; (exit status, result, output)."""

    def call(behaviour="pass", replayed="decode - 2"):
        peer, gguf = tmp_path / "llama_resident", tmp_path / "x.gguf"
        text = PEER.format(python=sys.executable, behaviour=behaviour, replayed=replayed)
        peer.write_text(text, "utf-8")
        peer.chmod(0o755)
        gguf.touch()
        monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
        monkeypatch.setattr(harness, "RESULTS", tmp_path)
        words = ["lengths", "--model", str(shipped_model()), "--device", "cpu", "--limit", "20"]
        words += ["--llama", str(peer), "--gguf", str(gguf), "--lengths", "24,40", "--steps", "8"]
        code = command.main(words)
        document = json.loads((tmp_path / "lengths.json").read_text("utf-8"))
        return code, document, capsys.readouterr().out

    return call


def rates(document, phase, engine):
    return {
        figure["tokens"]: figure
        for figure in document["figures"]
        if (figure["phase"], figure["engine"]) == (phase, engine)
    }


def test_rates_and_ratios(measure):
    code, document, out = measure()
    assert code == 0
    for phase, rate in (("prefill", 1000), ("decode", 100)):
        own, peer = rates(document, phase, "lily"), rates(document, phase, "llama.cpp")
        assert list(own) == list(peer) == [24, 40]
        for tokens, figure in peer.items():
            assert figure["median"] == pytest.approx(rate)
            assert figure["lily_ratio"] == pytest.approx(own[tokens]["median"] / rate, abs=1e-3)
    assert rates(document, "decode", "llama.cpp")[24]["replayed_steps"] == 6
    assert "| prompt | decode: Lily | llama.cpp | ratio | prefill: Lily |" in out
    assert "replayed a CUDA graph" not in out
    assert document["engines"]["llama.cpp"].endswith("USE_GRAPHS = 1")


def test_a_peer_without_its_graphs_is_said_to_be_slow(measure):
    code, document, _ = measure(replayed="0")
    assert code == 0
    assert any("replayed a CUDA graph in [0, 0] of 8 steps" in note for note in document["notes"])


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("if prompt > 30: sys.exit(3)", "llama.cpp ended with 3"),
        ("if prompt > 30: print('oh', flush=True)", "llama.cpp said 'oh.n', expected a line"),
    ],
)
def test_a_peer_that_fails_costs_nobody_else(measure, behaviour, said):
    code, document, out = measure(behaviour)
    assert code == 0
    assert list(rates(document, "decode", "llama.cpp")) == [24]
    assert list(rates(document, "decode", "lily")) == [24, 40]
    assert any(said.replace(".n", "\\n") in note for note in document["notes"])
    assert "| 40 |" in out


def test_a_peer_that_does_not_start():
    with pytest.raises(RuntimeError, match="peer does not start"):
        Resident("peer", ["/no/such/program"], 5)
    with pytest.raises(RuntimeError, match="was silent for 0 s"):
        Resident("peer", [sys.executable, "-c", "import time; time.sleep(60)"], 0.3)


def test_memory_beside_the_plan():
    """The plan counts Lily's own; the driver's is within what is allowed, or is not."""
    plan = {"total_bytes": 23_132_813_512}
    found = memory(plan, 23_711_449_088)
    assert (found["over_plan"], found["as_planned"]) == (0.025, True)
    assert memory(plan, 24_000_000_000)["as_planned"] is False
    assert memory(plan, 22_000_000_000)["as_planned"] is False
    assert "as_planned" not in memory(plan, None)


def test_the_table_marks_what_varied_and_says_what_is_missing():
    def figure(phase, tokens, engine, median, steady=True, **more):
        labels = {"phase": phase, "tokens": tokens, "engine": engine}
        return {**labels, "median": median, "steady": steady, **more}

    figures = [
        figure("decode", 256, "lily", 800.0),
        figure("decode", 256, "peer", 200.0, steady=False, lily_ratio=4.0),
        figure("prefill", 256, "lily", 8000.0),
    ]
    document = {"figures": figures, "memory": memory({"total_bytes": 100}, 102)}
    table = lengths_table.lines(document)
    assert table[2] == "| 256 | 800 | 200 (!) | 4.00 (!) | 8,000 | – | – |"
    assert table[-1].endswith("(+2.0%, within 3%).")


def test_a_command_imports_what_it_needs_alone():
    """The GPU machine has no FastAPI, no Presidio and no mlx; help needs nothing at all."""
    code = (
        "import sys\n"
        "from bench import __main__ as command\n"
        "try: command.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'lily', 'torch'} & set(sys.modules)\n"
        "try: command.main(['soak', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'lily.server', 'lily.gate', 'torch', 'transformers'} & set(sys.modules)\n"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "make-full" in done.stdout
