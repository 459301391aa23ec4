"""Settings of hybrid runs: one TOML file, checked, with defaults under which nothing leaves.

This file owns the names and ranges; it opens no connection. The planner's key is read from the
environment or the keychain at the moment of use, and stands in no setting.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lily.errors import InvalidInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class PlannerSettings:
    """Who plans: a model behind an OpenAI-compatible endpoint.

    Attributes:
        base_url: up to and with ``/v1``; https, or http to this machine.
        model: its name there.
        key_env: variable of the environment that holds the key.
        key_service: service in the keychain that holds it, for user "lily", where key_env is unset.
        destination: what the gate's settings call this endpoint; that decides its trust.
        timeout_s: without a byte from the planner.
        max_retries: of a request that failed before its first byte; the same bytes again.
        max_requests: to the planner in one run.
        max_sent_bytes: in one run, bodies together.
    """

    base_url: str = ""
    model: str = ""
    key_env: str = "LILY_PLANNER_KEY"
    key_service: str = ""
    destination: str = "planner"
    timeout_s: float = 60.0
    max_retries: int = 2
    max_requests: int = 16
    max_sent_bytes: int = 400_000

    def __post_init__(self) -> None:
        if not self.base_url:
            return
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise InvalidInput(f"planner.base_url is '{self.base_url}', expected https://host/v1")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise InvalidInput(
                f"planner.base_url is '{self.base_url}': plain http goes to this machine only"
            )
        if parts.username or parts.password:
            raise InvalidInput("planner.base_url holds a password; keys belong into key_env")
        if not self.model:
            raise InvalidInput("planner.model is empty, expected the model's name at the endpoint")
        _require_positive("planner", self, "timeout_s", "max_requests", "max_sent_bytes")

    @property
    def is_set(self) -> bool:
        """Whether there is a planner at all."""
        return bool(self.base_url)

    def key(self) -> str | None:
        """The key, from the environment or else the keychain; None where neither has one.

        Raises InvalidInput, which does not show it, for a key that no header may hold.
        """
        value = os.environ.get(self.key_env)
        if not value and self.key_service:
            import keyring

            value = keyring.get_password(self.key_service, "lily")
        value = (value or "").strip()
        if not (value.isascii() and value.isprintable()):
            raise InvalidInput("the planner's key has characters that no HTTP header may hold")
        return value or None


@dataclass(frozen=True)
class WorkerSettings:
    """Who does the private work: a model on this machine.

    Attributes:
        model: folder or hub id; empty for the model in the package.
        max_tokens: of each answer.
        max_material_bytes: of a single file that is read.
    """

    model: str = ""
    max_tokens: int = 512
    max_material_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        _require_positive("worker", self, "max_tokens", "max_material_bytes")


@dataclass(frozen=True)
class ReleaseSettings:
    """How much that was derived from private material may leave, whatever the gate says of it.

    Attributes:
        max_result_characters: of one result of the worker.
        max_run_characters: of all of them in one run.
    """

    max_result_characters: int = 600
    max_run_characters: int = 3000

    def __post_init__(self) -> None:
        for name in ("max_result_characters", "max_run_characters"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"release.{name} is {getattr(self, name)}, expected 0 or more")


@dataclass(frozen=True)
class HybridSettings:
    """Everything. ``HybridSettings()`` has no planner: all work stays on this machine.

    Attributes:
        gate: path of the gate's settings; empty for its defaults.
        local_fallback: where the planner fails, the worker finishes alone (else PlannerError).
    """

    planner: PlannerSettings = field(default_factory=PlannerSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    release: ReleaseSettings = field(default_factory=ReleaseSettings)
    gate: str = ""
    local_fallback: bool = True

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> HybridSettings:
        """Read a file; None takes ``default_path()`` where that exists, else the defaults.

        Raises InvalidInput for unknown names, wrong types and values out of range.
        """
        if path is None:
            if not default_path().exists():
                return cls()
            path = default_path()
        try:
            with Path(path).open("rb") as file:
                document = tomllib.load(file)
        except OSError as error:
            raise InvalidInput(f"hybrid settings '{path}': {error.strerror}") from error
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"hybrid settings '{path}': {error}") from error
        try:
            return cls.from_dict(document)
        except InvalidInput as error:
            raise InvalidInput(f"hybrid settings '{path}': {error}") from error

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> HybridSettings:
        """From tables and values as the file has them."""
        tables = {"planner": PlannerSettings, "worker": WorkerSettings, "release": ReleaseSettings}
        values: dict[str, Any] = {}
        for name, value in document.items():
            if name in tables:
                if not isinstance(value, dict):
                    raise InvalidInput(f"{name} is a {type(value).__name__}, expected a table")
                values[name] = tables[name](**_checked(tables[name], value, f"{name}."))
            else:
                values |= _checked(cls, {name: value}, "")
        return cls(**values)


def default_path() -> Path:
    """Where the settings are looked for: ``~/.config/lily/hybrid.toml``."""
    return Path.home() / ".config" / "lily" / "hybrid.toml"


def _checked(of: Any, table: dict[str, Any], prefix: str) -> dict[str, Any]:
    fields = {each.name: each for each in dataclasses.fields(of)}
    for name, value in table.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = f"; did you mean '{prefix}{near[0]}'?" if near else ""
            raise InvalidInput(f"'{prefix}{name}' is not a setting{hint}")
        wanted = type(fields[name].default)
        if wanted is float and type(value) is int:
            table = {**table, name: float(value)}
        elif type(value) is not wanted:
            raise InvalidInput(f"{prefix}{name} is {value!r}, expected a {wanted.__name__}")
    return table


def _require_positive(table: str, settings: Any, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) > 0:
            raise InvalidInput(f"{table}.{name} is {getattr(settings, name)}, expected above 0")
