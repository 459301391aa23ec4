"""What a server may be told, in one place.

This file owns the names, defaults and limits; it knows no command line and no HTTP library.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from lily.errors import InvalidInput
from lily.gate.settings import Settings as GateSettings
from lily.hybrid.settings import HybridSettings

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server behaves. Times in seconds, sizes in bytes.

    Attributes:
        host: address to listen on; only this machine by default.
        port: 0 takes a free one.
        api_keys: any of these opens the server; none: no key is asked for.
        allowed_hosts: names that the Host header may have, without port; "*" allows all. Empty:
            the names of this machine's loopback if that is where it listens, else all.
        cors_origins: origins of web pages that may use the server; "*" allows all.
        parallel: most requests that run at once, taking turns token by token.
        queue: most requests that wait for one of those places.
        max_body_bytes: largest request body.
        max_choices: largest ``n``, and most prompts in one request.
        read_timeout_s: longest time for headers, and again for the body.
        send_timeout_s: longest time that a client may leave an answer unread.
        request_timeout_s: longest time of one job, waiting included.
        keep_alive_s: how often a stream that has nothing to say yet shows that it lives.
        idle_unload_s: unused for so long, the model leaves the memory; None: never.
        grace_s: how long running answers may go on after SIGTERM.
        log_text: whether prompts and answers may appear in the log.
        gate: settings of the privacy gate at /v1/gate.
        hybrid: settings of the model lily/hybrid; without a planner in them all work stays here.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    parallel: int = 8
    queue: int = 64
    max_body_bytes: int = 32 * 2**20
    max_choices: int = 16
    read_timeout_s: float = 30.0
    send_timeout_s: float = 60.0
    request_timeout_s: float = 3600.0
    keep_alive_s: float = 5.0
    idle_unload_s: float | None = None
    grace_s: float = 20.0
    log_text: bool = False
    gate: GateSettings = field(default_factory=GateSettings)
    hybrid: HybridSettings = field(default_factory=HybridSettings)

    def __post_init__(self) -> None:
        for name, low in (("port", 0), ("queue", 0), ("parallel", 1), ("max_choices", 1)):
            if getattr(self, name) < low:
                raise InvalidInput(f"{name} is {getattr(self, name)}, expected {low} or more")
        if self.port > 65535:
            raise InvalidInput(f"port is {self.port}, expected 0 to 65535")
        if self.grace_s < 0:
            raise InvalidInput(f"grace_s is {self.grace_s}, expected 0 or more")
        for name in (
            "max_body_bytes",
            "read_timeout_s",
            "send_timeout_s",
            "request_timeout_s",
            "keep_alive_s",
            "idle_unload_s",
        ):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidInput(f"{name} is {value}, expected more than 0")
        if not all(self.api_keys):
            raise InvalidInput("an API key is empty; leave it out to ask for none")

    @property
    def checked_hosts(self) -> frozenset[str] | None:
        """Host names to accept, in lower case; None accepts all."""
        if self.allowed_hosts:
            return None if "*" in self.allowed_hosts else _lower(self.allowed_hosts)
        return _lower((*LOOPBACK_NAMES, self.host)) if is_loopback(self.host) else None


def _lower(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.lower().strip("[]") for name in names)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
