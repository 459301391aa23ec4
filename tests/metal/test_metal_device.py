"""The engine through the Metal device: on a Mac its GPU, on Linux a simulated one.

The simulated GPU (tests/metal/simulated) keeps Metal's rules, tells completions late and out of
order, and runs the Metal kernels on fibers. Skipped, and counted so, in builds without the device.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import lily
import pytest
from lily import Engine, _native
from lily._native import kernels as native
from lily.doctor.check import run as run_check
from lily.doctor.checks import all_checks
from lily.errors import DeviceError

# Words that the model knows, so that its choices are far from ties: neither bf16 nor half
# activations turn them. A few rows, and a prompt of more than one matrix tile.
PROMPTS = [
    "Once upon",
    [{"role": "user", "content": "What is the capital of France? Answer in one word, please."}],
]
TOKENS = 5


IS_SIMULATED = sys.platform == "linux"
only_simulated = pytest.mark.skipif(not IS_SIMULATED, reason="steers a simulated GPU")


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A simulated GPU, and a home for its caches."""
    if IS_SIMULATED:
        simulate(monkeypatch, "seed=1")
        monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "home"))
    try:
        native.Device("metal")
    except DeviceError as error:
        pytest.skip(f"the Metal device was not run: {error}")


def simulate(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """Set what the next device that is opened will be."""
    monkeypatch.setenv("LILY_SIMULATED_METAL", machine)


def load(device: str) -> Engine:
    """The packaged model on one device."""
    return Engine.load(device=device, max_context=512)


# A Mac of today, and the oldest: half activations, no residency sets.
MACHINES = {
    "newer": ("seed=1,family=9,delay_us=300", "bf16"),
    "oldest": ("seed=2,family=7,os=14", "f16"),
}


@pytest.mark.parametrize("machine", MACHINES if IS_SIMULATED else ["this Mac"])
def test_same_tokens_as_the_cpu_device(monkeypatch, machine):
    """Prefill in tiles, then decode steps that feed themselves."""
    if IS_SIMULATED:
        settings, activations = MACHINES[machine]
        simulate(monkeypatch, settings)
        assert native.Device("metal").activation_dtype == activations
    with load("cpu") as cpu, load("metal") as metal:
        for prompt in PROMPTS:
            want = cpu.generate(prompt, temperature=0, max_tokens=TOKENS)
            got = metal.generate(prompt, temperature=0, max_tokens=TOKENS)
            assert got.token_ids == want.token_ids
            assert len(got.token_ids) >= 2


@only_simulated
def test_a_failing_command_buffer_ends_the_session(monkeypatch):
    """Its tokens before stay, later steps are refused, and a new prompt goes on."""
    simulate(monkeypatch, "seed=3,fail_at=3,fail_code=2")
    folder = Path(lily.__file__).parent / "models" / "lily_tiny"
    session = _native.Engine(str(folder), device="metal", max_context=64).session()
    session.prefill([100, 101, 102])
    with pytest.raises(DeviceError, match=r"took too long.*it held kernels embed_rows"):
        step_until_it_fails(session)
    done = session.num_tokens
    assert done >= 3
    with pytest.raises(DeviceError, match=f"cannot go on after its token {done}: a step failed"):
        session.step(103)
    session.prefill([100, 101, 102, 103])
    assert session.step(104).token_id < 2**16


def step_until_it_fails(session: _native.Session) -> None:
    """The simulated GPU fails within a few."""
    for _ in range(10):
        session.step(103)


@only_simulated
def test_auto_does_without_a_gpu(monkeypatch):
    """A build with the Metal device, on a machine that shows no GPU."""
    monkeypatch.delenv("LILY_SIMULATED_METAL")
    assert native.Device("auto").name in ("cuda", "cpu")


@only_simulated
def test_tensor_units_are_used(monkeypatch):
    """Steps of many rows are recorded with their kernels, once these were checked."""
    simulate(monkeypatch, "family=10")
    device = native.Device("metal")
    assert device.facts()["tensor units"] == "yes, used (self-check passed)"
    assert "linear_gemm_bf16_bf16_t64_tensor " in recorded_product(device)
    simulate(monkeypatch, "family=10,os=15")
    device = native.Device("metal")
    assert device.facts()["tensor units"] == "yes, not used: the system has no Metal 4"
    assert "linear_gemm_bf16_bf16_t64 " in recorded_product(device)


@only_simulated
def test_doctor_checks_tensor_ops(monkeypatch):
    """Against the CPU device, at shapes of the model, and says which kernels it ran."""
    simulate(monkeypatch, "family=10")
    device, cpu = native.Device("metal"), native.Device("cpu")
    launched = set()
    for one in all_checks(quick=True):
        if re.search(r"(linear|linear_add|attention_prefill|moe_grouped_\w+) .* 33 ", one.name):
            outcome = run_check(one, device, cpu)
            assert not outcome.difference.text, one.name
            launched.add(outcome.launched)
    assert launched == {
        "linear_gemm_q4_bf16_t64_tensor",
        "linear_gemm_add_q4_bf16_t64_tensor",
        "attention_prefill_bf16_bf16_d256_tensor",
        "moe_grouped_gate_up_q4_bf16_t32_tensor",
        "moe_grouped_down_q4_bf16_t32_tensor",
    }


def recorded_product(device: native.Device) -> str:
    """A step with a product of more than a tile of rows."""
    step = native.Step(device)
    x, weight = device.zeros([40, 64], "bf16"), device.zeros([8 * 64], "bf16")
    y = device.zeros([40, 8], "f32")
    native.linear(step, y, x, [native.Matrix("bf16", weight, rows=8, cols=64)])
    return step.describe()


def test_facts_are_for_people():
    """What `lily doctor` shows of this device."""
    facts = native.Device("metal").facts()
    assert facts["thermal state"] in ("nominal", "fair", "serious", "critical")
    assert facts["memory pressure"] in ("normal", "warning", "critical")
    assert facts["kernels"]
