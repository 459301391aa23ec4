"""Make the mid model's files: random bf16 checkpoint, MLX 4-bit, and GGUF Q4_0 for llama.cpp.

  python -m bench make-mid OUT [--llama-cpp FOLDER]

OUT/hf is written by mid_model.py; OUT/mlx-4bit by Lily's converter, or by mlx_lm where that is
asked for; OUT/Q4_0.gguf by llama.cpp's own converter and quantiser, from a built source folder (its
converter needs torch, transformers and sentencepiece in this Python).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from bench.mid_model import write_checkpoint
from bench.shapes import MODELS

# llama.cpp refuses a tokenizer whose fingerprint it does not know, and ours is not of this world.
_CONVERT = """
import runpy, sys
folder, source, target = sys.argv[1:4]
sys.path[:0] = [folder, folder + "/gguf-py"]
import conversion.base as base
for found in list(vars(base).values()):
    if isinstance(found, type) and "get_vocab_base_pre" in vars(found):
        found.get_vocab_base_pre = lambda self, tokenizer: "qwen35"
script = folder + "/convert_hf_to_gguf.py"
sys.argv = [script, source, "--outfile", target, "--outtype", "bf16", "--no-mtp"]
runpy.run_path(script, run_name="__main__")
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench make-mid``."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="mid", choices=MODELS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--converter", default="lily", choices=("lily", "mlx_lm"))
    parser.add_argument("--llama-cpp", type=Path, help="source folder with build/bin")


def run(arguments: argparse.Namespace) -> None:
    """Each file that is not there yet."""
    out = arguments.out.absolute()
    hf, mlx = out / "hf", out / "mlx-4bit"
    if not (hf / "config.json").exists():
        print("writing hf (random bf16 weights)", flush=True)
        write_checkpoint(hf, MODELS[arguments.model], arguments.seed)
    if not (mlx / "config.json").exists():
        print(f"writing mlx-4bit ({arguments.converter})", flush=True)
        _call(_converter(arguments.converter, hf, mlx))
    if arguments.llama_cpp:
        _make_gguf(arguments.llama_cpp.absolute(), hf, out)


def _converter(name: str, source: Path, target: Path) -> list[str]:
    if name == "lily":
        options = ["--bits", "4", "--group-size", "64"]
        return [sys.executable, "-m", "lily", "convert", str(source), str(target), *options]
    module = [sys.executable, "-m", "mlx_lm", "convert"]
    return [*module, "--hf-path", str(source), "--mlx-path", str(target), "-q"]


def _make_gguf(llama_cpp: Path, source: Path, out: Path) -> None:
    whole, quantised = out / "bf16.gguf", out / "Q4_0.gguf"
    if not whole.exists():
        print("writing bf16.gguf (llama.cpp)", flush=True)
        _call([sys.executable, "-c", _CONVERT, str(llama_cpp), str(source), str(whole)])
    if not quantised.exists():
        print("writing Q4_0.gguf (llama.cpp)", flush=True)
        _call([str(llama_cpp / "build/bin/llama-quantize"), str(whole), str(quantised), "Q4_0"])


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise RuntimeError(f"'{os.path.basename(command[0])}' exited {done.returncode}: {said}")
