"""From a name to a folder with a checkpoint in it.

This file owns where checkpoints come from: the model in the package, a local folder, or the hub
(through ``huggingface_hub``, whose cache, resume and ``HF_HOME`` it keeps). It reads no tensor and
does not judge the architecture; the native loader does.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

from lily.errors import DownloadError, InvalidInput, ModelError

# Only what a text model needs, and only from the top folder: hubs also carry images, original
# weights and other formats, of many gigabytes.
NEEDED_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "README.md",
    "*.safetensors",
    "*.safetensors.index.json",
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SUPPORTED = (
    "Lily reads a folder with config.json, tokenizer.json and *.safetensors, in HF or MLX layout"
)


def shipped_model() -> Path:
    """The folder of the small model that ships in the package.

    Raises ModelError if this installation was built without it.
    """
    folder = Path(str(resources.files("lily"))) / "models" / "lily_tiny"
    if not (folder / "config.json").is_file():
        raise ModelError(f"this installation has no built-in model ({folder} lacks config.json)")
    return folder


def resolve(
    path_or_repo: str | os.PathLike[str] | None = None,
    *,
    revision: str | None = None,
    offline: bool = False,
    token: str | None = None,
    progress: bool = True,
) -> Path:
    """Return the folder of a checkpoint, downloading it if it is on the hub and not yet here.

    ``None`` is the model in the package; an existing folder is itself; ``org/name`` is a hub id.
    ``offline`` never touches the network. ``token`` is for private repositories; without it
    ``huggingface_hub`` uses the one it knows.

    Raises InvalidInput (no such folder, not a hub id), ModelError (a single file or a repository
    of another format), DownloadError (not found, gated, no network, disk full, not in the cache).

    Example:
        >>> resolve("mlx-community/Qwen3.6-35B-A3B-4bit", offline=True)   # doctest: +SKIP
    """
    if path_or_repo is None:
        if revision is not None:
            raise InvalidInput("revision is for hub models; the built-in model has none")
        return shipped_model()
    name = os.fspath(path_or_repo)
    if not name.strip():
        raise InvalidInput("the model's name is empty; give a folder or a hub id like 'org/name'")
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise ModelError(_single_file(path))
    if not isinstance(path_or_repo, str) or not _looks_like_hub_id(name):
        raise InvalidInput(f"no such folder: {name} (hub models are written 'org/name')")
    return _download(name, revision, offline, token, progress)


def _looks_like_hub_id(name: str) -> bool:
    return _HUB_ID.fullmatch(name) is not None and not name.endswith((".safetensors", ".gguf"))


def _single_file(path: Path) -> str:
    kind = "GGUF files are not supported" if path.suffix == ".gguf" else "this is a single file"
    return f"{path}: {kind}. {_SUPPORTED}."


def _download(
    repo: str, revision: str | None, offline: bool, token: str | None, progress: bool
) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    options: dict[str, Any] = {} if progress else {"tqdm_class": _silent_bar()}
    try:
        folder = Path(
            snapshot_download(
                repo,
                revision=revision,
                local_files_only=offline,
                token=token,
                allow_patterns=list(NEEDED_FILES),
                ignore_patterns=["*/*"],
                **options,
            )
        )
    except HFValidationError as error:
        raise InvalidInput(f"'{repo}' is not a valid hub id: {error}") from error
    except Exception as error:
        # The hub client's transport errors differ with its version (requests, httpx, xet), and
        # nothing but the download runs here.
        raise DownloadError(_explain(error, repo, revision, offline)) from error
    _check_complete(folder, repo, offline)
    return folder


def _explain(error: Exception, repo: str, revision: str | None, offline: bool) -> str:
    """One line that says what to do, from what ``huggingface_hub`` raised."""
    from huggingface_hub import errors

    at = f"{repo}@{revision}" if revision else repo
    if isinstance(error, errors.GatedRepoError):
        return f"{repo} is gated: accept its terms on the hub and log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{repo}: no such model on the hub, or it is private and you are not logged in"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no revision '{revision}'"
    if isinstance(error, errors.LocalEntryNotFoundError):
        if offline:
            return f"{at} is not (completely) in the local cache; load it once without offline"
        return f"{at} is not in the local cache and the hub cannot be reached"
    if _is_disk_full(error):
        return f"the disk is full; {at} is incomplete. Free space and load again: it resumes"
    return f"{at} could not be downloaded: {type(error).__name__}: {error}"


def _is_disk_full(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_complete(folder: Path, repo: str, offline: bool) -> None:
    """Older hub clients return a partial snapshot when offline, so the shards are counted here."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        if not any(folder.glob("*.safetensors")):
            raise ModelError(f"{repo} has no safetensors files. {_SUPPORTED}.")
        return
    try:
        wanted = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{repo}: {index.name} cannot be read: {error!r}") from error
    missing = sorted(str(shard) for shard in wanted if not (folder / str(shard)).is_file())
    if missing:
        hint = "; load it once without offline" if offline else ""
        raise DownloadError(
            f"{repo} is incomplete in the cache: {len(missing)} of {len(wanted)} weight files are "
            f"missing ({missing[0]} is the first){hint}"
        )


def _silent_bar() -> type[Any]:
    base: Any = importlib.import_module("huggingface_hub.utils").tqdm  # it has no type

    def init(bar: Any, *args: Any, **options: Any) -> None:
        base.__init__(bar, *args, **{**options, "disable": True})

    return type("SilentBar", (base,), {"__init__": init})
