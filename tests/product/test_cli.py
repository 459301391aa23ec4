"""The command line: what it prints where, exit codes, and the dialogue."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lily import _native, cli
from lily.cli.chat import Dialogue
from lily.cli.terminal import AnswerPrinter
from lily.completion import Chunk
from lily.engine import Engine
from lily.errors import DownloadError, OutOfMemory

from .fake_native import FakeSession

FACTS = {
    "architecture": "qwen3_5_moe",
    "layout": "mlx",
    "config": {"layers": 8, "vocab": 6144, "max_positions": 40_000},
    "formats": {"bf16": 1_000_000, "q4": 9_000_000},
    "parameters": 20_100_000,
    "active_parameters": 9_000_000,
    "weights_bytes": 10_000_000,
    "unused": ["mtp.* (15 tensors)"],
    "kv_bytes_per_token": 2048,
    "state_bytes": 1_000_000,
    "problems": [],
}


@pytest.fixture
def run(monkeypatch, capsys, native, tiny_folder):
    """Run ``lily ARGS`` on the toy model; returns exit code, stdout, stderr."""

    def load(*_, **__):
        native.sessions.clear()
        return Engine(native, tiny_folder, name="toy", facts=FACTS)

    monkeypatch.setattr(Engine, "load", load)

    def call(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["lily", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as left:
            cli.main()
        out = capsys.readouterr()
        return left.value.code or 0, out.out, out.err

    return call


def test_raw_answer_goes_to_stdout_alone(run, engine):
    wanted = engine.generate("Once", temperature=0, max_tokens=5)
    code, out, err = run("generate", "Once", "--raw", "-t", "0", "--max-tokens", "5")
    assert (code, out, err) == (0, wanted.text + "\n", "")
    code, out, _ = run("generate", "-", "--raw", "-t", "0", "--max-tokens", "5", stdin="Once")
    assert (code, out) == (0, wanted.text + "\n")


def test_chat_answer_with_system_message(run, engine, native, tokenizer):
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    prompt = engine._prompt(messages, None, False, None).token_ids
    native.say([*tokenizer.encode("Hello"), tokenizer.control_ids["<|im_end|>"]], len(prompt))
    code, out, err = run("generate", "Q", "--system", "S", "--no-think", "-t", "0")
    assert (code, out, err) == (0, "Hello\n", "")
    assert native.sessions[0].tokens[: len(prompt)] == prompt


def test_stop_options(run, engine, native, tokenizer):
    native.say(tokenizer.encode("one two three"), 1)
    code, out, _ = run(
        "generate",
        "a",
        "--raw",
        "-t",
        "0",
        "--stop",
        "three",
        "--stop",
        " two",
        "--max-tokens",
        "9",
    )
    assert (code, out) == (0, "one\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["generate", ""], 0, None),
        (["generate", "", "--raw"], 2, "lily: the prompt is empty\n"),
        (["generate", "a", "--raw", "--think"], 2, "lily: --system and --think"),
        (["generate", "a", "-t", "-1"], 2, "lily: temperature is -1.0"),
        (["generate", "a " * 600, "--raw"], 2, "lily: the prompt has"),
        (["generate"], 2, "Missing argument"),
        (["generate", "a", "--no-such"], 2, "No such option"),
        (["dance"], 2, "No such command"),
        (["bench", "-l", "1000"], 2, "lily: the prompt has 1,000 tokens"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, native, arguments, code, said):
    native.max_context = 400
    got, _, err = run(*arguments)
    assert got == code
    if said is not None:
        assert said in err
        assert "Traceback" not in err
        if said.startswith("lily"):
            assert err.count("\n") == 1


def test_other_errors_are_code_1(run, monkeypatch):
    def fail(*_, **__):
        raise DownloadError("no network")

    monkeypatch.setattr(Engine, "load", fail)
    assert run("generate", "a") == (1, "", "lily: no network\n")


def test_ctrl_c_is_code_130(run, native, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeSession, "step", interrupt)
    code, _, err = run("generate", "Once", "--raw")
    assert code == 130
    assert "Traceback" not in err


def test_bench(run):
    code, out, _ = run("bench", "-l", "20", "-l", "30", "--tokens", "4", "--rounds", "2", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["rounds"] == 2
    assert [row["prompt_tokens"] for row in found["results"]] == [20, 30]
    assert all(
        row["decode_tokens_per_s"] > 0 < row["prefill_tokens_per_s"] for row in found["results"]
    )
    code, out, _ = run("bench", "--tokens", "4", "--rounds", "1")
    assert code == 0
    assert "128" in out
    assert "2,048" not in out


@pytest.fixture
def described(monkeypatch):
    facts = json.loads(json.dumps(FACTS))

    def plan(path, *, device, max_context):
        if max_context > 32_768:
            raise OutOfMemory("needs 99 GB, has 1 GB")
        total = {"total_bytes": 5 * 10**9, "limit_bytes": 10**10}
        return {"kv_bytes": max_context * 2048, "cache_bytes": 10**9, **total}

    monkeypatch.setattr(_native, "describe", lambda path: facts)
    monkeypatch.setattr(_native, "plan", plan)
    return facts


def test_info(run, described, tiny_folder):
    code, out, _ = run("info", str(tiny_folder))
    assert code == 0
    for part in (
        "qwen3_5_moe",
        "20.1 M",
        "4-bit 9.0 MB, bf16 1.0 MB",
        "mtp.* (15 tensors)",
        "refused: needs 99 GB",
        "5.0 GB",
    ):
        assert part in out
    code, out, _ = run("info", str(tiny_folder), "--json")
    found = json.loads(out)
    assert [plan["max_context"] for plan in found["plans"]] == [4096, 32768, 40000]
    assert [plan["refused"] for plan in found["plans"]] == [None, None, "needs 99 GB, has 1 GB"]


def test_info_of_the_shipped_model_prints_its_card(run, described):
    code, out, _ = run("info")
    assert code == 0
    assert "What it is not good for" in out
    assert "WordNet" in out


def test_info_of_what_would_be_refused(run, described, tiny_folder):
    described["problems"] = ["model.norm.weight has shape [3]"]
    code, out, _ = run("info", str(tiny_folder))
    assert code == 0
    assert "would be refused: model.norm.weight has shape [3]" in out


def test_info_does_not_download(run, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    code, _, err = run("info", "org/name")
    assert code == 1
    assert "--download" in err
    assert run("info", "/no/where")[0] == 2


def test_chat_by_a_script(run, engine, native, tokenizer):
    prompt = engine._prompt([{"role": "user", "content": "Hi"}], None, None, None).token_ids
    native.say([*tokenizer.encode("x</think>Hello", special=True)], len(prompt))
    code, out, err = run("chat", "-t", "0", "--max-tokens", "9", stdin="Hi\n/dance\n")
    assert code == 0
    assert out.startswith("Hello")
    assert "> " not in out
    assert err == "no command /dance; /help lists them\n"


class Lines:
    """Plays the user: strings are typed, exceptions are raised."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, str):
            return line
        raise line


class Echo:
    """A conversation that says the text back, or raises what the test hands it."""

    def __init__(self, error=None):
        self.error = error
        self.said = []
        self.messages = [{"role": "user", "content": "ü"}]
        self.systems = []

    def reset(self, system=None):
        self.systems.append(system)

    def stream(self, text):
        self.said.append(text)
        yield Chunk("it is ")
        if self.error is not None:
            raise self.error
        yield Chunk(text)


def talk(*lines, error=None, system=None):
    echo = Echo(error)
    Dialogue(echo, system, Lines(*lines)).run()
    return echo


def test_messages_of_one_and_many_lines(capsys):
    echo = talk(
        "one", "two \\", "lines\\", "", '"""', "  a", "", "b", '"""', '"""c"""', " ", "/exit", "x"
    )
    assert echo.said == ["one", "two \nlines\n", "  a\n\nb", "c"]
    assert capsys.readouterr().out.startswith("it is one\n")


def test_ctrl_d_leaves_and_ctrl_c_at_the_prompt_does_not():
    assert talk(KeyboardInterrupt(), "a").said == ["a"]


def test_ctrl_c_stops_the_answer_and_not_the_program(capsys):
    assert talk("a", "b", error=KeyboardInterrupt()).said == ["a", "b"]
    assert capsys.readouterr().out.count("it is \n") == 2


def test_failed_turn_does_not_end_the_dialogue(capsys):
    assert talk("a", "b", error=OutOfMemory("full")).said == ["a", "b"]
    assert capsys.readouterr().err == "lily: full\n" * 2


def test_commands(tmp_path, capsys):
    file = tmp_path / "talk.json"
    echo = talk("/reset", "/system Be kind.", "/reset", "/system", f"/save {file}", system="Old.")
    assert echo.systems == ["Old.", "Be kind.", "Be kind.", None]
    assert echo.said == []
    assert json.loads(file.read_text("utf-8")) == echo.messages
    assert "ü" in file.read_text("utf-8")
    capsys.readouterr()
    talk("/help", "/save", f"/save {tmp_path}", "/dance")
    out, err = capsys.readouterr()
    assert "/reset" in out
    assert "Ctrl-C" in out
    assert "/save needs a file name" in err
    assert "no command /dance" in err
    assert "irectory" in err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_thinking_is_dim_and_escapes_are_harmless_on_a_terminal():
    out, remarks = Terminal(), Terminal()
    printer = AnswerPrinter(out, remarks)
    printer.show(Chunk(reasoning="hm\x1b]0;x\x07"))
    printer.show(Chunk("yes\x1b[2J\n\tok"))
    printer.end("fast")
    assert out.getvalue() == "yes\ufffd[2J\n\tok\n"
    assert remarks.getvalue() == "\x1b[2mhm\ufffd]0;x\ufffd\x1b[0m\n\n\x1b[2mfast\x1b[0m\n"


def test_a_pipe_gets_the_answer_as_it_is():
    out, remarks = io.StringIO(), io.StringIO()
    printer = AnswerPrinter(out, remarks)
    printer.show(Chunk(reasoning="hm"))
    printer.show(Chunk("yes\x1b[2J"))
    printer.end("fast")
    assert (out.getvalue(), remarks.getvalue()) == ("yes\x1b[2J\n", "")


def test_help_loads_neither_numpy_nor_the_native_module():
    code = (
        "import sys; sys.argv = ['lily', '--help']\n"
        "from lily.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', [m for m in ('numpy', 'tokenizers', 'lily._native') if m in sys.modules])"
    )
    source = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=source, timeout=60
    )
    assert "LOADED []" in done.stdout
    assert "convert" in done.stdout
