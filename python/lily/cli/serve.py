"""``lily serve``: an HTTP server with OpenAI's API.

This file owns the command's options and the form of its log; everything else is in ``server``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lily.cli import options
from lily.errors import InvalidInput

if TYPE_CHECKING:
    from lily.engine import Engine


def _option(group: str, *names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=group, **more)


_Model = Annotated[
    str | None, typer.Argument(help="A folder or a hub id; without it the built-in model.")
]
_Host = Annotated[str, _option("Server", "--host", help="Address to listen on.")]
_Port = Annotated[int, _option("Server", "--port", "-p", help="0 takes a free one.")]
_Parallel = Annotated[
    int, _option("Server", "--parallel", help="Requests that run at once, in turns.")
]
_Queue = Annotated[int, _option("Server", "--queue", help="Requests that wait; more get 503.")]
_IdleUnload = Annotated[
    float | None,
    _option("Server", "--idle-unload", help="Free the memory after so many idle seconds."),
]
_RequestTimeout = Annotated[
    float, _option("Server", "--request-timeout", help="Longest time of one answer, seconds.")
]
_ReadTimeout = Annotated[
    float, _option("Server", "--read-timeout", help="Longest time for a request to arrive.")
]
_MaxBody = Annotated[int, _option("Server", "--max-body", help="Largest request body, bytes.")]
_Grace = Annotated[
    float, _option("Server", "--grace", help="Seconds to finish answers after SIGTERM.")
]
_KeepAlive = Annotated[
    float, _option("Server", "--keep-alive", help="Seconds between signs of life in a stream.")
]
_ApiKey = Annotated[
    list[str] | None,
    _option("Access", "--api-key", help="Ask for this key; repeatable.", envvar="LILY_API_KEY"),
]
_AllowedHost = Annotated[
    list[str] | None,
    _option("Access", "--allowed-host", help="Accept this Host name; '*' for all."),
]
_CorsOrigin = Annotated[
    list[str] | None,
    _option("Access", "--cors-origin", help="Let pages of this origin in; '*' for all."),
]
_LogText = Annotated[
    bool, _option("Access", "--log-text", help="Write prompts and answers to the log.")
]
_GateSettings = Annotated[
    Path | None, _option("Access", "--gate-settings", help="TOML file of the privacy gate.")
]
_HybridSettings = Annotated[
    Path | None, _option("Access", "--hybrid-settings", help="TOML file of the model lily/hybrid.")
]
_CacheBytes = Annotated[
    int | None, _option("Model", "--cache-bytes", help="Most memory for prefixes of prompts.")
]


def serve(
    model: _Model = None,
    host: _Host = "127.0.0.1",
    port: _Port = 8000,
    parallel: _Parallel = 8,
    queue: _Queue = 64,
    idle_unload: _IdleUnload = None,
    request_timeout: _RequestTimeout = 3600.0,
    read_timeout: _ReadTimeout = 30.0,
    max_body: _MaxBody = 32 * 2**20,
    grace: _Grace = 20.0,
    keep_alive: _KeepAlive = 5.0,
    api_key: _ApiKey = None,
    allowed_host: _AllowedHost = None,
    cors_origin: _CorsOrigin = None,
    log_text: _LogText = False,
    gate_settings: _GateSettings = None,
    hybrid_settings: _HybridSettings = None,
    cache_bytes: _CacheBytes = None,
    device: options.Device = "auto",
    max_context: options.MaxContext = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    threads: options.Threads = None,
) -> None:
    """Serve a model over HTTP, with OpenAI's API."""
    settings = {
        "host": host,
        "port": port,
        "parallel": parallel,
        "queue": queue,
        "idle_unload_s": idle_unload,
        "request_timeout_s": request_timeout,
        "read_timeout_s": read_timeout,
        "max_body_bytes": max_body,
        "grace_s": grace,
        "keep_alive_s": keep_alive,
        "api_keys": tuple(api_key or ()),
        "allowed_hosts": tuple(allowed_host or ()),
        "cors_origins": tuple(cors_origin or ()),
        "log_text": log_text,
    }
    engine_options: dict[str, Any] = {
        "device": device,
        "max_context": max_context,
        "revision": revision,
        "offline": offline,
        "threads": threads,
        "cache_bytes": cache_bytes,
        "max_sessions": parallel,
    }
    _run(model, settings, gate_settings, hybrid_settings, engine_options)


def _policies(gate: Path | None, hybrid: Path | None) -> dict[str, Any]:
    """Settings from the two files; a gate that the hybrid's file names is the server's, too."""
    from lily.gate import Settings as GateSettings
    from lily.hybrid import HybridSettings

    settings: dict[str, Any] = {}
    if hybrid is not None:
        settings["hybrid"] = HybridSettings.load(hybrid)
        if gate is None and settings["hybrid"].gate:
            gate = Path(settings["hybrid"].gate)
    if gate is not None:
        settings["gate"] = GateSettings.load(gate)
    return settings


def _run(
    model: str | None,
    given: dict[str, Any],
    gate: Path | None,
    hybrid: Path | None,
    engine_options: dict[str, Any],
) -> None:
    try:
        from lily.server.run import serve as run_server
        from lily.server.settings import Settings
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"the server needs the package {error.name}; pip install 'lily-engine[server]'"
        ) from error

    def load() -> Engine:
        from lily.engine import Engine

        return Engine.load(model, **engine_options)

    settings = Settings(**given, **_policies(gate, hybrid))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    run_server(load, settings)
