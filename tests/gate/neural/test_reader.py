"""The reader as a whole: windows, whole words, other mentions, coverage, damaged files.

Most tests put a scripted encoder in, which gives each token the tag that the test wants.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from lily._native import Encoder
from lily.errors import DeviceError, LilyError, ModelError
from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.neural import Reader, coverage, mentions
from lily.gate.neural.settings import read_settings
from lily.gate.neural.tokens import Tokens, WordPieces, shape
from lily.gate.neural.windows import cut

from gate.neural.models import LABELS, TOPICS, WORDS, Model

TAGS = 1 + 4 * len(LABELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model's files."""
    return Model().write(tmp_path_factory.mktemp("model"))


class Scripted:
    """In the encoder's place: tags by word; the document is about nothing."""

    def __init__(self, tags: dict[str, tuple[str, str]]) -> None:
        self._tags = {WORDS.index(word): wanted for word, wanted in tags.items()}
        self.lengths: list[int] = []

    def run(self, ids, forms, lengths):
        """Logits of 9 for the tag that is wanted."""
        self.lengths = lengths.tolist()
        logits = np.zeros((len(ids), TAGS), np.float32)
        logits[:, 0] = 5
        for row, token in enumerate(ids.tolist()):
            if token in self._tags:
                kind, label = self._tags[token]
                logits[row, 1 + 4 * LABELS.index(label) + "BIES".index(kind)] = 20
        return logits, np.full((len(lengths), len(TOPICS) + 3), -9, np.float32)


def scripted(folder: Path, **tags: tuple[str, str]) -> Reader:
    """A reader that finds these words."""
    settings = read_settings(folder)
    return Reader(Scripted(tags), WordPieces(folder, settings), settings, 0.0)


def found(reader: Reader, text: str) -> list[tuple[str, str]]:
    """(category, text) of each finding."""
    return [(one.category.value, text[one.start : one.end]) for one in reader.read(text).findings]


ADA = {"ada": ("B", "person"), "love": ("I", "person"), "##lace": ("E", "person")}


# --- tokens and windows -------------------------------------------------------------------------


def test_shapes():
    """One word of each form."""
    words = ["-", "home", "Home", "HOME", "A", "iPhone", "2024", "a1"]
    assert list(map(shape, words)) == list(range(8))
    assert [shape(each) for each in ("É", "ß", "İstanbul", "½", "")] == [4, 1, 2, 0, 0]


def test_forms_and_words(folder):
    """White space and line breaks in front; pieces share their word's form and place."""
    tokens = WordPieces(folder, read_settings(folder)).tokens("Lovelace ada\nADA123\ud800.")
    assert tokens.starts.tolist()[:3] == [0, 0, 9]
    # The first word counts as behind a line break.
    assert tokens.forms.tolist()[:4] == [2 + 16, 2 + 16, 1 + 8, 7 + 16]
    whole = WordPieces(folder, read_settings(folder)).tokens("my ada\n love")
    assert whole.forms.tolist() == [1 + 16, 1 + 8, 1 + 16]
    assert whole.ends.tolist() == [2, 6, 12]


@given(total=st.integers(1, 200), overlap=st.integers(0, 13))
def test_every_token_has_the_window_where_it_stands_deepest(folder, total, overlap):
    """By the definition: the greatest distance from the nearer edge, the earlier of equals."""
    settings = replace(read_settings(folder), overlap_tokens=overlap)
    ids = np.arange(total, dtype=np.uint32) + 1000
    zeros = np.zeros(total, np.uint32)
    windows = cut(Tokens(ids, zeros, zeros, zeros), settings)
    np.testing.assert_array_equal(windows.ids[windows.rows], ids)
    assert windows.lengths.max() <= 16
    assert windows.lengths.sum() == len(windows.ids) == len(windows.forms)
    edges = np.cumsum(windows.lengths)
    begins = edges - windows.lengths
    assert (windows.ids[begins] == settings.cls_id).all()
    assert (windows.ids[edges - 1] == settings.sep_id).all()
    for token in range(total):
        places = np.flatnonzero(windows.ids == 1000 + token)
        inside = np.searchsorted(edges, places, side="right")
        margins = np.minimum(places - begins[inside], edges[inside] - 1 - places)
        assert windows.rows[token] == places[margins.argmax()]


def test_the_end_of_a_long_text_is_read(folder):
    """Nothing is cut off, at whatever length."""
    reader = scripted(folder, ada=("S", "person"))
    for words in (1, 13, 14, 15, 29, 1000):
        text = "home " * words + "Ada"
        assert found(reader, text) == [("person", "Ada")]


def test_a_name_over_the_edge_of_windows(folder):
    """One span, though no window holds all of its neighbours."""
    reader = scripted(folder, **ADA)
    for words in range(5, 30):
        text = "home " * words + "Ada Lovelace " + "home " * 20
        assert found(reader, text) == [("person", "Ada Lovelace")]


def test_windows_reach_the_encoder_as_they_were_cut(folder):
    """A text reads as the network says of its rows."""
    settings, model = read_settings(folder), Model()
    pieces = WordPieces(folder, settings)
    text = "my name is ada lovelace and i live in london"
    windows = cut(pieces.tokens(text), settings)
    tokens, documents = Encoder(str(folder)).run(windows.ids, windows.forms, windows.lengths)
    want = model.run(windows.ids, windows.forms, windows.lengths)
    assert np.abs(tokens - want[0]).max() < 1e-4
    assert np.abs(documents - want[1]).max() < 1e-4


def test_texts_without_a_token(folder):
    """Nothing to find, and nothing to raise."""
    for text in ("", " ", "\n\n", "\u200b", "\x00"):
        assert Reader.load(folder).read(text).findings == ()


# --- mentions -----------------------------------------------------------------------------------


def test_parts_of_a_name_are_found_alone(folder):
    """Before and after the full name; possessives too; the words around it stay."""
    text = "Ada went home. Ada Lovelace lived in London, and ada went. Lovelace's home."
    reader = scripted(folder, love=("B", "person"), **{"##lace": ("E", "person")})
    assert found(reader, text) == [("person", "Lovelace"), ("person", "Lovelace")]
    tags = {"mark": ("B", "person"), "spenser": ("E", "person")}
    text = "Mark Spenser will call; may mark the date. So Mark went, and SPENSER. Mark the date."
    assert found(scripted(folder, spenser=("S", "person")), text)[1:] == [("person", "SPENSER")]

    class Full(Scripted):
        """Only the full name is found."""

        def run(self, ids, forms, lengths):
            logits, documents = super().run(ids, forms, lengths)
            alone = [
                row
                for row, token in enumerate(ids[:-1].tolist())
                if token == WORDS.index("mark") and ids[row + 1] != WORDS.index("spenser")
            ]
            logits[alone, 1:] = 0
            return logits, documents

    settings = read_settings(folder)
    reader = Reader(Full(tags), WordPieces(folder, settings), settings, 0.0)
    names = [each for _, each in found(reader, text)]
    # "mark the date" is a verb, and so may be the "Mark" that begins a sentence.
    assert names[:2] == ["Mark Spenser", "Mark"]
    assert text.count("Mark") == 3
    assert [one.start for one in reader.read(text).findings if one.rule.endswith("mention")] == [
        text.index("Mark went")
    ]


@pytest.mark.parametrize(
    ("text", "name", "mentioned"),
    [
        ("tom hurst is late; tell tom and tomas", "tom hurst", ["tom"]),
        ("ask will hurst if he will come", "will hurst", []),
        ("MARK HURST SIGNED. MARK THE DATE, HURST", "MARK HURST", ["HURST"]),
        ("SOPHY SANTINO signed; sophy santino too", "SOPHY SANTINO", ["sophy santino"]),
        ("Sean O'Hara came. O'Hara's son; Sean\nO'Hara", "Sean O'Hara", ["O'Hara", "Sean\nO'Hara"]),
        ("Dr. Kim Lee and Lee's car; a dr of the lee", "Dr. Kim Lee", ["Lee"]),
    ],
)  # fmt: skip
def test_how_mentions_are_written(text, name, mentioned):
    """Case tells where a text has both; else only words that are names alone."""
    start = text.index(name)
    given = [Finding(start, start + len(name), Category.PERSON, 0.9, "neural.person")]
    more = mentions.mentions(text, given)
    assert [text[one.start : one.end] for one in more] == mentioned
    assert all(one.rule == "neural.person.mention" for one in more)


def test_identifiers_are_mentioned_in_any_case(folder):
    """By all of their characters, and not inside longer ones."""
    text = "file AB-1234 of ab-1234, XAB-1234, AB-12345"
    given = [Finding(5, 12, Category.CASE_NUMBER, 0.8, "neural.case_number")]
    assert [one.span for one in mentions.mentions(text, given)] == [(16, 23)]
    unsure = [Finding(5, 12, Category.CASE_NUMBER, 0.4, "neural.case_number")]
    assert mentions.mentions(text, unsure) == []


def test_numbers_do_not_spread_without_cause(folder):
    """A condition or an age names nobody: the second stays."""
    reader = scripted(folder, home=("S", "health"))
    text = "home is home"
    assert len(found(reader, text)) == 2  # each by the encoder, none as a mention
    assert all(not one.rule.endswith("mention") for one in reader.read(text).findings)


def test_mentions_take_linear_time(folder):
    """Many names in a long text: the work is counted, not timed."""
    looked = 0

    class Counting(str):
        """Counts slices."""

        def __getitem__(self, key):
            nonlocal looked
            looked += 1
            return str.__getitem__(self, key)

    def work(names: int) -> int:
        nonlocal looked
        text = " ".join(f"Name{chr(65 + i % 26)}{i}x" for i in range(names)) * 2
        spans = [match.span() for match in mentions._RUN.finditer(text)][:names]
        looked = 0
        given = [Finding(a, b, Category.PERSON, 0.9, "neural.person") for a, b in spans]
        assert len(mentions.mentions(Counting(text), given)) >= names - 2
        return looked

    assert work(2000) < 2.2 * work(1000)


# --- coverage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("My name is Ada.", True),
        ("", True),
        ("Ça va, Zoë? Łódź", True),
        ("5 µm at α = 0.05, Δx → 0", True),
        ("ｆｕｌｌ　ｗｉｄｔｈ", True),
        ("e\u0301te\u0301", True),
        ("Меня зовут Иван", False),
        ("the name is 田中 in the list", False),
        ("שלום", False),
        ("و\u200dا", False),
        ("مرحبا", False),
        ("The quick fox and the dog were in the house, which was not that big.", True),
        ("El paciente fue dado de alta y los resultados de la prueba son como siempre.", False),
        ("Der Patient ist mit dem Auto nach Hause gefahren und nicht zu uns.", False),
        (
            "Please say what this is, and what the doctor of the ward would do with it:\n\n"
            "El paciente fue dado de alta y los resultados de la prueba son como siempre.",
            False,
        ),
        ("for (int i = 0; i < n; ++i) { std::swap(a[i], b[i]); }", True),
        ("2026-09-03T10:11:12Z level=info svc=billing shard=17 took=35ms", True),
        ("Please translate 'je ne sais pas' for me, and say what it is in the song.", True),
    ],
)
def test_coverage(text, covered):
    """Other scripts and languages are not judged; code, logs and formulas are no language."""
    assert coverage.is_covered(text, frozenset({"en"})) is covered


def test_a_reading_says_that_it_is_not_judged(folder):
    """And still says what it found."""
    reading = scripted(folder, ada=("S", "person")).read("Ada: Меня зовут Иван")
    assert not reading.judged
    assert len(reading.findings) == 1


# --- what goes wrong ----------------------------------------------------------------------------


def test_numbers_that_are_not_finite(folder):
    """Never read as nothing found."""

    class Broken(Scripted):
        def run(self, ids, forms, lengths):
            logits, documents = super().run(ids, forms, lengths)
            logits[1, 0] = np.nan
            return logits, documents

    settings = read_settings(folder)
    reader = Reader(Broken({}), WordPieces(folder, settings), settings, 0.0)
    with pytest.raises(DeviceError, match="not finite"):
        reader.read("my name")


def damaged(folder: Path, to: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(folder, to, dirs_exist_ok=True))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_that_is_missing_or_cut_short(folder, tmp_path, name):
    """A typed error that names the file."""
    copy = damaged(folder, tmp_path / "copy")
    data = (copy / name).read_bytes()
    for size in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
        (copy / name).write_bytes(data[:size])
        with pytest.raises(ModelError, match=name):
            Reader.load(copy)
    (copy / name).unlink()
    with pytest.raises(ModelError, match=name):
        Reader.load(copy)


def test_a_changed_byte_of_the_weights(folder, tmp_path):
    """The digest sees it."""
    copy = damaged(folder, tmp_path / "copy")
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "model.safetensors").write_bytes(bytes(data))
    with pytest.raises(ModelError, match="SHA-256"):
        Reader.load(copy)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name", ["layers.1.mlp.up.scales", "layers.0.attention.key.bias", "embeddings.word.biases"]
)
def test_weights_that_are_not_finite(tmp_path, name, value):
    """Even where the digest is right."""
    model = Model()
    dtype, array = model.tensors[name]
    changed = array.copy()
    bits = np.array([value], np.float32).view(np.uint32)[0] >> 16
    changed.flat[3] = bits if dtype == "BF16" else value
    model.tensors[name] = (dtype, changed)
    with pytest.raises(ModelError, match=rf"{name} holds"):
        Reader.load(model.write(tmp_path))


def test_tensors_that_do_not_fit(tmp_path):
    """Missing, unexpected, of another shape or type."""
    model = Model()
    token = model.tensors.pop("token.weight")
    with pytest.raises(ModelError, match=r"there is no tensor token\.weight"):
        Reader.load(model.write(tmp_path))
    model.tensors["token.weight"] = ("F32", token[1].T.copy())
    with pytest.raises(
        ModelError, match=r"token\.weight is \"F32\" \[64, 17\], expected F32 \[17, 64\]"
    ):
        Reader.load(model.write(tmp_path))
    model.tensors["token.weight"] = ("U32", token[1].view(np.uint32))
    with pytest.raises(ModelError, match=r"token\.weight is \"U32\""):
        Reader.load(model.write(tmp_path))
    model.tensors |= {"token.weight": token, "more": token}
    with pytest.raises(ModelError, match='unexpected tensor "more"'):
        Reader.load(model.write(tmp_path))


@hypothesis(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_a_typed_error(folder, tmp_path, data):
    """Bytes changed anywhere, the digest made to fit: loads, or says why not; never crashes."""
    copy = damaged(folder, tmp_path / "copy")
    name = data.draw(st.sampled_from(["config.json", "model.safetensors"]))
    content = bytearray((copy / name).read_bytes())
    header = 8 + int.from_bytes(content[:8], "little") if name != "config.json" else len(content)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    (copy / name).write_bytes(bytes(content))
    if name == "model.safetensors":
        config = json.loads((copy / "config.json").read_text())
        config["weights_sha256"] = hashlib.sha256(content).hexdigest()
        (copy / "config.json").write_text(json.dumps(config))
    with contextlib.suppress(LilyError):
        Reader.load(copy).read("my name is ada")


def test_no_socket_is_opened(folder, monkeypatch):
    """Neither by loading nor by reading."""

    def refuse(*_arguments, **_options):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    Reader.load(folder).read("my name is ada lovelace")
