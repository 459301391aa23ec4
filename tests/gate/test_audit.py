"""The audit log and the receipt: everything about a verdict, and nothing of the text."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

import pytest
from lily.gate import Category, Finding, Gate, Outcome, Subject, Topic, TopicFinding
from lily.gate.audit import AuditLog
from lily.gate.preview import effective_table, policy_table, preview
from lily.gate.receipt import as_json, as_text
from lily.gate.settings import AuditSettings, Settings, parse
from rich.console import Console

from .scripted import Scripted

# Each word stands in a place of its own: text, findings, destination, conversation.
CANARIES = ("canary.one@example.org", "sk-canarytwo99", "canary-three", "canary-four", "Ann Vale")
TEXT = f"{CANARIES[4]} of {CANARIES[0]} uses {CANARIES[1]} for {CANARIES[2]}"


def gate(path, **more):
    settings = Settings(audit=AuditSettings(file=path, **more))
    return Gate(settings, detectors=Scripted(), conversation=CANARIES[3])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_no_text(tmp_path):
    path = tmp_path / "log" / "gate.jsonl"
    made = gate(path)
    made.inspect(TEXT, CANARIES[2])
    made.inspect(TEXT, "cloud")
    written = path.read_text()
    for canary in CANARIES:
        for piece in (canary, canary.split()[0], canary[-6:]):
            assert piece not in written
    first, second = lines(path)
    assert first["outcome"] == "refuse"
    assert first["categories"] == {"email": 1, "person": 1, "secret": 1}
    assert first["rules"] == ["secret.live", "contact.masked"]
    assert (first["trust"], second["destination"]) == ("untrusted", "cloud")
    assert first["text"] == second["text"], "equal texts have equal digests here"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(f"{path}.key").st_mode) == 0o600


def test_digests_depend_on_the_installation(tmp_path):
    for name in ("a", "b"):
        gate(tmp_path / name).inspect("1234")
    one, other = lines(tmp_path / "a")[0], lines(tmp_path / "b")[0]
    assert one["text"] != other["text"]
    assert one["conversation"] != other["conversation"]


def test_the_chain_shows_what_was_changed(tmp_path):
    path = tmp_path / "log"
    made = gate(path)
    for number in range(5):
        made.inspect(f"text {number}")
    log = AuditLog(AuditSettings(file=path))
    assert log.broken() is None
    kept = path.read_text().splitlines(keepends=True)
    changed = kept[2].replace('"allow"', '"refuse"')
    assert changed != kept[2]
    for tampered, place in (
        ([*kept[:2], changed, *kept[3:]], 3),
        ([*kept[:1], *kept[2:]], 2),
        ([*kept[:3], "{}\n"], 4),
        (["no json\n"], 1),
    ):
        path.write_text("".join(tampered))
        assert log.broken() == place


@pytest.mark.parametrize("keep", [0, 2])
def test_rotation(tmp_path, keep):
    path = tmp_path / "log"
    made = gate(path, max_bytes=4096, keep=keep)
    for number in range(40):
        made.inspect(f"text {number}")
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["log", *(f"log.{number}" for number in range(1, keep + 1)), "log.key"]
    assert all(one.stat().st_size <= 4096 for one in tmp_path.iterdir())
    assert AuditLog(AuditSettings(file=path)).broken() is None, "the chain goes on over files"


@pytest.mark.parametrize(
    ("on_failure", "outcome"), [("local", Outcome.LOCAL), ("warn", Outcome.ALLOW)]
)
def test_a_log_that_cannot_be_written(tmp_path, on_failure, outcome):
    (tmp_path / "log").mkdir()
    made = gate(tmp_path / "log", on_failure=on_failure)
    assert made.inspect("hello").outcome is outcome
    assert made.inspect("sk-abcdefgh1").outcome is Outcome.REFUSE
    assert made.inspect("hello", "local").outcome is Outcome.ALLOW


def test_a_damaged_key_is_a_failure(tmp_path):
    (tmp_path / "log.key").write_bytes(b"short")
    verdict = gate(tmp_path / "log").inspect("hello")
    assert verdict.rules == ("audit.failed",)


# --- receipts ---


def test_a_receipt_says_what_where_and_why():
    verdict = Gate(detectors=Scripted()).inspect("Ann Vale and Ann Vale: ann@example.org")
    person, mail = list(verdict.mapping)
    assert as_text(verdict) == (
        "This may be sent with placeholders.\n"
        "To: cloud\n\n"
        "Why:\n"
        "  Mask: names, addresses and contacts are replaced by placeholders "
        "(name of a person ×2, e-mail address).\n\n"
        "Placeholders:\n"
        f"  {person}: name of a person, 2 times (by neural.person)\n"
        f"  {mail}: e-mail address (by test.email)\n\n"
        "What would be sent:\n"
        f"  {person} and {person}: {mail}\n"
    )
    said = as_json(verdict)
    assert said["masks"][2] == {
        "placeholder": mail,
        "category": "email",
        "rule": "test.email",
        "restorable": True,
    }
    assert json.loads(json.dumps(said)) == said


def test_receipts_hold_no_originals():
    verdict = Gate(detectors=Scripted()).inspect(TEXT)
    for receipt in (as_text(verdict), json.dumps(as_json(verdict))):
        assert not [canary for canary in (*CANARIES[:2], CANARIES[4]) if canary in receipt]
    assert "never restored" in as_text(verdict)


@pytest.mark.parametrize(
    ("topics", "headline"),
    [
        ([], "This may be sent as it is."),
        ([TopicFinding(Topic.HEALTH, Subject.PERSONAL, 1, 1)], "This stays on this machine."),
    ],
)
def test_headlines(topics, headline):
    verdict = Gate(detectors=Scripted(topics=topics)).inspect("hello")
    assert as_text(verdict).startswith(headline)


# --- previews ---


def printed(what):
    console = Console(width=100, force_terminal=True, color_system="standard", record=True)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


def test_a_preview_marks_findings_and_cannot_steer_the_terminal():
    text = "Ann\x1b[2J [bold]x[/bold] ann@example.org"
    shown = printed(preview(Gate(detectors=Scripted()).inspect(text), text))
    assert "\x1b[2J" not in shown
    assert "[bold]x[/bold]" in shown, "markup in the text stays text"
    assert "\x1b[30;46mann@example.org" in shown
    sent = shown.split("What would be sent:")[1]
    assert "\x1b[30;46m[EMAIL_1_" in sent
    assert "ann@" not in sent


def test_a_preview_of_every_category():
    text = "x" * len(Category)
    findings = [Finding(at, at + 1, one, 1.0, "t") for at, one in enumerate(Category)]
    verdict = Gate(detectors=Scripted(extra=findings)).inspect(text)
    assert verdict.outcome is Outcome.REFUSE
    assert "password" in printed(preview(verdict, text))


def test_tables():
    assert "secret.live" in printed(policy_table())
    changed = replace(parse('categories.iban = "ask"'))
    assert "ask" in next(
        row for row in printed(effective_table(changed)).splitlines() if "IBAN" in row
    )
