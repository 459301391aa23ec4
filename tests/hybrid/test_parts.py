"""The small parts of hybrid runs: settings, the calculator, reading files, handles, the receipt."""

from __future__ import annotations

import json
import os
import stat

import pytest
from lily.errors import InvalidInput
from lily.hybrid import HybridSettings
from lily.hybrid.calculator import calculate
from lily.hybrid.extract import files_below, read_text
from lily.hybrid.material import Materials
from lily.hybrid.receipt import Decision, Receipt, Sent, shown_headers
from lily.hybrid.run import _Handles
from lily.hybrid.settings import PlannerSettings

MOST = 1 << 20


# --- settings ---------------------------------------------------------------------------------


def load(tmp_path, text):
    """Settings from a file of this text."""
    path = tmp_path / "hybrid.toml"
    path.write_text(text)
    return HybridSettings.load(path)


def test_defaults_send_nothing():
    """Without a planner there is nobody to send to."""
    assert not HybridSettings().planner.is_set


def test_settings_are_read(tmp_path, monkeypatch):
    """Tables and values; the key comes from the environment."""
    found = load(
        tmp_path,
        'local_fallback = false\n[planner]\nbase_url = "https://h/v1"\nmodel = "m"\n'
        'timeout_s = 5\nkey_env = "K"\n[release]\nmax_run_characters = 0\n',
    )
    assert found.planner.is_set
    assert found.planner.timeout_s == 5.0
    assert found.release.max_run_characters == 0
    assert not found.local_fallback
    assert found.planner.key() is None
    monkeypatch.setenv("K", "secret")
    assert found.planner.key() == "secret"
    assert "secret" not in repr(found)


def test_the_keychain(monkeypatch):
    """Asked where the environment has no key, and never else."""
    asked = []

    def get_password(service, user):
        asked.append((service, user))
        return "from the keychain\n"

    monkeypatch.setattr("keyring.get_password", get_password)
    monkeypatch.delenv("LILY_PLANNER_KEY", raising=False)
    assert PlannerSettings().key() is None
    assert PlannerSettings(key_service="s").key() == "from the keychain"
    monkeypatch.setenv("LILY_PLANNER_KEY", "from the environment")
    assert PlannerSettings(key_service="s").key() == "from the environment"
    assert asked == [("s", "lily")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[planer]\n", "'planer' is not a setting; did you mean 'planner'"),
        ('[planner]\nbase_ur = "x"\n', "did you mean 'planner.base_url'"),
        ('[planner]\nbase_url = "ftp://x"\nmodel = "m"', "expected https"),
        ('[planner]\nbase_url = "http://example.com/v1"\nmodel = "m"', "this machine only"),
        ('[planner]\nbase_url = "https://u:p@h/v1"\nmodel = "m"', "holds a password"),
        ('[planner]\nbase_url = "https://h/v1"', "planner.model is empty"),
        ('[planner]\ntimeout_s = "5"', "planner.timeout_s is '5', expected a float"),
        ("[worker]\nmax_tokens = 0", "worker.max_tokens is 0, expected above 0"),
        ("[release]\nmax_run_characters = -1", "expected 0 or more"),
        ("planner = 3", "planner is a int, expected a table"),
        ("= 3", "hybrid.toml"),
    ],
)
def test_bad_settings_are_named(tmp_path, text, said):
    """The message names the setting and what was expected."""
    with pytest.raises(InvalidInput) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)


# --- calculator -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 * (3 + 4)", "14"),
        ("7 / 2", "3.5"),
        ("-7 // 2", "-4"),
        ("2 ** 10", "1024"),
        ("max(1, 2.5) + min(3, 4) + sum(1, 2)", "8.5"),
        ("sqrt(2)", "1.41421356237"),
    ],
)
def test_calculates(expression, value):
    """Exact where it can be."""
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "2 +", "__import__('os')", "(1).real", "x", "9 ** 9 ** 9", "1 / 0", "2 ** 0.5 ** -900",
     "(-8) ** 0.5", "sqrt(-1)", "[1]", "'a' * 9", "True + 1", "max()", "sum(*x)", "1" * 600,
     "(" * 400 + ")" * 400, "1e999", "lambda: 1", "1 if 1 else 2"],
)  # fmt: skip
def test_refuses_what_is_no_arithmetic(expression):
    """Whatever a planner sends: a ValueError, quickly."""
    with pytest.raises(ValueError, match=r"not arithmetic|too l"):
        calculate(expression)


# --- files ------------------------------------------------------------------------------------


def test_reads_each_kind(tmp_path):
    """The text of every kind of file that is named in the documentation."""
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["name", "due"])
    book.active.append(["rent", 900])
    book.save(tmp_path / "a.xlsx")
    (tmp_path / "b.csv").write_text("name;due\nrent;900\n")
    (tmp_path / "c.html").write_text("<p>rent</p><script>no()</script><p>900</p>")
    (tmp_path / "d.txt").write_bytes("rent 900 €".encode("cp1252"))
    (tmp_path / "e.pdf").write_bytes(pdf("rent 900"))
    for path in files_below(tmp_path):
        text = read_text(path, MOST)
        assert "rent" in text, path
        assert "900" in text, path
        assert "no()" not in text
    assert len(list(files_below(tmp_path))) == 5


def pdf(text: str) -> bytes:
    """The smallest PDF that says something."""
    stream = f"BT /F1 12 Tf 10 10 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R"
        b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
    ]
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 5\n0000000000 65535 f \n" + table
    return out + head + b"trailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(out)


def test_a_folder_is_not_left(tmp_path):
    """Links out of the folder, hidden files and unreadable kinds are left out."""
    (tmp_path / "secret.txt").write_text("x")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / ".hidden.txt").write_text("x")
    (folder / "image.png").write_bytes(b"x")
    (folder / "ok.md").write_text("fine")
    assert [path.name for path in files_below(folder)] == ["ok.md"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.pdf", b"%PDF-broken", "a.pdf"),
        ("a.xlsx", b"PK no", "cannot be read"),
        ("a.txt", b" \n", "holds no text"),
        ("a.exe", b"x", "of a kind that cannot be read"),
        ("a.txt", b"x" * (MOST + 1), "expected up to"),
    ],
)
def test_bad_files_are_named(tmp_path, name, data, said):
    """An error of ours, with the file's name, for the user."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInput) as caught:
        read_text(tmp_path / name, MOST)
    assert said in str(caught.value)


# --- handles and receipt ----------------------------------------------------------------------


def test_what_a_planner_knows_of_a_file(tmp_path):
    """Handle, kind, rounded size; not the name."""
    (tmp_path / "anna-smith-divorce.txt").write_text("word " * 60)
    materials = Materials()
    piece = materials.add_path(tmp_path / "anna-smith-divorce.txt", MOST)[0]
    assert piece.public == "d1: text, up to 200 words"
    assert materials.find("d1") is piece
    for nothing in ("d2", "", None, 1, ["d1"], {}):
        assert materials.find(nothing) is None


@pytest.mark.parametrize("cut", range(1, 12))
def test_handles_in_streams(cut):
    """Any cutting of a stream gives the same text as the whole."""
    materials = Materials()
    materials.add_result("ten {{r1}} thousand")
    text = "a {{r1}} b {{ r1 }} {{r2}} { {x} {{r1"
    handles = _Handles(materials)
    pieces = [handles.feed(text[at : at + cut]) for at in range(0, len(text), cut)]
    assert "".join(pieces) + handles.finish() == materials.expand(text)


def test_receipt_is_saved_for_its_owner_alone(tmp_path):
    """JSON with bytes and digests; no key; mode 600."""
    receipt = Receipt("https://h/v1")
    headers = shown_headers([("Authorization", "Bearer sk-1"), ("Accept", "x")])
    receipt.sent.append(Sent("POST", "https://h/v1/chat/completions", headers, '{"é":1}', "200"))
    receipt.decisions.append(Decision("task", "mask", ("one name",), {"person": 1}))
    receipt.save(tmp_path / "r.json")
    assert stat.S_IMODE(os.stat(tmp_path / "r.json").st_mode) == 0o600
    text = (tmp_path / "r.json").read_text()
    assert "sk-1" not in text
    found = json.loads(text)
    assert found["sent"][0]["body_bytes"] == 8
    assert found["summary"] == (
        "8 bytes left in 1 request to https://h/v1, 1 item masked, 0 texts kept here."
    )
