"""Where checkpoints come from: folders, the package, and a hub that a local server plays."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from lily import hub
from lily.errors import DownloadError, InvalidInput, ModelError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"[]",
    "chat_template.jinja": b"x",
    "model-00001-of-00002.safetensors": b"1" * 1000,
    "model-00002-of-00002.safetensors": b"2" * 1000,
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {f"w{n}": f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}}
    ).encode(),
    "model-Q4_K_M.gguf": b"g" * 1000,
    "pytorch_model.bin": b"p" * 1000,
    "original/model.safetensors": b"o" * 1000,
    "picture.png": b"i",
}
NEEDED = {name for name in FILES if name.split(".")[-1] in ("json", "jinja", "safetensors")} - {
    "original/model.safetensors"
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as a download uses."""

    fetched: list[str]

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith("/api/models/org/gated"):
            self._send(403, b"", {"X-Error-Code": "GatedRepo"})
        elif not path.startswith(("/api/models/org/name/", "/org/name/")):
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif path in ("/api/models/org/name/revision/main", "/api/models/org/name/revision/v1"):
            siblings = [{"rfilename": name} for name in FILES]  # what older clients go by
            found = {"id": "org/name", "sha": COMMIT, "siblings": siblings}
            self._send(200, json.dumps(found).encode())
        elif path.startswith("/api/models/org/name/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": self._id(data)}
                for name, data in FILES.items()
            ]
            self._send(200, json.dumps(tree).encode())
        elif path.startswith("/org/name/resolve/"):
            name = path.split("/", 5)[5]
            if self.command == "GET":
                self.fetched.append(name)
            etag = f'"{self._id(FILES[name])}"'
            self._send(200, FILES[name], {"ETag": etag, "X-Repo-Commit": COMMIT})
        else:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})

    do_HEAD = do_GET  # noqa: N815

    @staticmethod
    def _id(data):
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def _send(self, status, body, headers=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    Hub.fetched = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()


def resolve_in_process(server, home: Path, *arguments: str) -> str:
    """Resolve in a process of its own, where HF_HOME and HF_ENDPOINT are read anew."""
    code = (
        "from lily import errors, hub\n"
        f"try: print(hub.resolve({', '.join(arguments)}))\n"
        "except errors.LilyError as e: print(type(e).__name__ + ':', e)"
    )
    address = "http://127.0.0.1:1" if server is None else f"http://127.0.0.1:{server.server_port}"
    # The package's place is passed on, in case it is not installed but on the path.
    path = os.pathsep.join([str(Path(hub.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "HF_HOME": str(home),
            "HF_ENDPOINT": address,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONPATH": path,
            "NO_PROXY": "*",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_download_fetches_only_what_is_needed_and_then_works_offline(server, tmp_path):
    folder = Path(resolve_in_process(server, tmp_path, "'org/name'"))
    assert tmp_path in folder.parents  # HF_HOME is honoured
    assert {path.name for path in folder.iterdir()} == NEEDED
    assert set(Hub.fetched) == NEEDED
    assert (folder / "model-00001-of-00002.safetensors").read_bytes() == b"1" * 1000
    assert resolve_in_process(None, tmp_path, "'org/name', offline=True") == str(folder)
    count = len(Hub.fetched)
    assert resolve_in_process(server, tmp_path, "'org/name', progress=False") == str(folder)
    assert len(Hub.fetched) == count  # nothing is fetched twice
    (folder / "model-00002-of-00002.safetensors").unlink()
    said = resolve_in_process(None, tmp_path, "'org/name', offline=True")
    assert said.startswith("DownloadError: org/name")
    assert "complete" in said
    assert resolve_in_process(server, tmp_path, "'org/name'") == str(folder)  # it resumes
    assert Hub.fetched[count:] in ([], ["model-00002-of-00002.safetensors"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'org/missing'", "DownloadError: org/missing: no such model"),
        ("'org/gated'", "DownloadError: org/gated is gated"),
        ("'org/name', revision='v9'", "DownloadError: org/name has no revision 'v9'"),
        ("'org/other', offline=True", "DownloadError: org/other is not (completely) in the local"),
    ],
)
def test_what_the_hub_refuses(server, tmp_path, arguments, said):
    assert resolve_in_process(server, tmp_path, arguments).startswith(said)


def test_no_network(tmp_path):
    said = resolve_in_process(None, tmp_path, "'org/name'")
    assert said == "DownloadError: org/name is not in the local cache and the hub cannot be reached"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("xet: No space left on device (os error 28)"),
    ],
)
def test_disk_full(monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    with pytest.raises(DownloadError, match="the disk is full; org/name is incomplete"):
        hub.resolve("org/name")


def test_partial_snapshot_of_an_older_client(monkeypatch, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_bytes(FILES["model.safetensors.index.json"])
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(DownloadError, match=r"1 of 2 weight files.*model-00002.*without offline"):
        hub.resolve("org/name", offline=True)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ModelError, match="cannot be read"):
        hub.resolve("org/name")


def test_repository_of_another_format(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(ModelError, match=r"no safetensors files.*HF or MLX"):
        hub.resolve("org/name-GGUF")


def test_local_folders(tmp_path, monkeypatch):
    assert hub.resolve(tmp_path) == tmp_path
    assert hub.resolve(str(tmp_path)) == tmp_path
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert hub.resolve("org/name") == Path("org/name")  # what is here comes before the hub
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.resolve("~/org") == tmp_path / "org"


def test_shipped_model(tiny_folder):
    assert (hub.resolve() / "config.json").is_file()
    with pytest.raises(InvalidInput, match="revision"):
        hub.resolve(revision="main")


@pytest.mark.parametrize(
    "name",
    [
        "./org/name",
        "/no/where",
        "~/nowhere",
        "a/b/c",
        "name",
        "org/",
        "C:\\models\\x",
        "org/x.gguf",
    ],
)
def test_a_folder_that_is_not_there_never_asks_the_hub(monkeypatch, name):
    def never(*_, **__):
        raise AssertionError("asked the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", never)
    for given in (name, Path(name)):
        with pytest.raises(InvalidInput, match="no such folder"):
            hub.resolve(given)
    with pytest.raises(InvalidInput, match="no such folder"):
        hub.resolve(Path("org/name"))


def test_odd_names(tmp_path):
    with pytest.raises(InvalidInput, match="empty"):
        hub.resolve(" ")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"GGUF files are not supported.*safetensors"):
        hub.resolve(tmp_path / "m.gguf")
    (tmp_path / "m.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"single file.*folder"):
        hub.resolve(str(tmp_path / "m.safetensors"))
    with pytest.raises(InvalidInput, match="not a valid hub id"):
        hub.resolve("org/na--me")
