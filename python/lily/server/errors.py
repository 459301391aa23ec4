"""Errors that clients see: what went wrong, with which status, in OpenAI's body.

This file owns the mapping from Lily's errors, and the server's own, to one plain ``Problem`` that
every API can dress in its own shape. It knows no route.
"""

from __future__ import annotations

import logging
import re
import traceback
from dataclasses import dataclass
from typing import Any

from lily.errors import (
    Cancelled,
    ContextFull,
    DeviceError,
    DownloadError,
    InvalidInput,
    LilyError,
    ModelError,
    OutOfMemory,
)

RETRY_AFTER_S = 1
_log = logging.getLogger("lily.server")


class ServerError(LilyError):
    """An error of the server itself, with its HTTP status.

    Its kinds are named for what they say, as in HTTP; "Error" behind each would say it twice.

    Attributes:
        status: of the response, if none has begun.
        kind: OpenAI's ``type``.
        code: OpenAI's ``code``.
        param: the field of the request that is to blame.
    """

    status = 500
    kind = "server_error"
    code: str | None = None
    text = "the server failed"

    def __init__(self, text: str | None = None, *, param: str | None = None) -> None:
        super().__init__(text or self.text)
        self.param = param


class BadRequest(ServerError):
    """The request cannot be understood, or asks for what cannot be done."""

    status, kind = 400, "invalid_request_error"

    def __init__(self, text: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(text, param=param)
        self.code = code


class Unauthorized(ServerError):
    """No API key, or a wrong one."""

    status, kind, code = 401, "invalid_request_error", "invalid_api_key"
    text = "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'"


class Forbidden(ServerError):
    """The request comes by a name, or from a web page, that is not allowed."""

    status, kind, code = 403, "invalid_request_error", "forbidden"


class NotFound(ServerError):
    """No such place."""

    status, kind, code = 404, "invalid_request_error", "not_found"


class MethodNotAllowed(ServerError):
    """The place is there, but not for this method."""

    status, kind, code = 405, "invalid_request_error", "method_not_allowed"


class TooSlow(ServerError):
    """The client took too long to send its request."""

    status, kind, code = 408, "invalid_request_error", "request_timeout"


class TooLarge(ServerError):
    """The body is over the limit."""

    status, kind, code = 413, "invalid_request_error", "request_too_large"


class NotSupported(ServerError):
    """A part of the API that this server does not have."""

    status, kind, code = 501, "invalid_request_error", "not_supported"


class Busy(ServerError):
    """The queue is full."""

    status, kind, code = 503, "overloaded_error", "queue_full"


class ModelLoading(ServerError):
    """The model is not in memory yet."""

    status, kind, code = 503, "overloaded_error", "model_loading"
    text = "the model is still loading"


class ShuttingDown(ServerError):
    """The server is about to end."""

    status, kind, code = 503, "overloaded_error", "shutting_down"
    text = "the server is shutting down"


class TimedOut(ServerError):
    """The job ran longer than one may."""

    status, kind, code = 504, "server_error", "timeout"


class RefusedByGate(ServerError):
    """The gate sends the task nowhere."""

    status, kind, code = 403, "invalid_request_error", "refused_by_gate"


class PlannerFailed(ServerError):
    """The planner failed, and the settings let nobody else answer."""

    status, kind, code = 502, "server_error", "planner_failed"


class WorkerFailed(ServerError):
    """The model of this server could not do the work."""

    status, kind, code = 500, "server_error", "worker_failed"


@dataclass(frozen=True)
class Problem:
    """An error as clients are told of it."""

    status: int
    message: str
    kind: str
    code: str | None = None
    param: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the status."""
        if self.status == 503:
            return {"retry-after": str(RETRY_AFTER_S)}
        return {"www-authenticate": "Bearer"} if self.status == 401 else {}


def openai_body(found: Problem) -> dict[str, Any]:
    """The error body of OpenAI's APIs."""
    return {
        "error": {
            "message": found.message,
            "type": found.kind,
            "param": found.param,
            "code": found.code,
        }
    }


# InvalidInput messages begin with what they are about: "messages[2] has ...", "top_p is ...".
_NAME = r"[a-z_]+(?:\[\d+\])?"
_SUBJECT = re.compile(rf"({_NAME}(?:\.{_NAME})*):? (?:is|has|holds|are)\b")
_NOT_FIELDS = ("this", "the", "text", "it")


def problem(error: BaseException) -> Problem:
    """What a client is told about ``error``; of an unknown one, nothing but that it happened."""
    if isinstance(error, ServerError):
        return Problem(error.status, str(error), error.kind, error.code, error.param)
    if isinstance(error, ContextFull):
        code = "context_length_exceeded"
        return Problem(400, str(error), "invalid_request_error", code, "messages")
    if isinstance(error, InvalidInput):
        return Problem(400, str(error), "invalid_request_error", None, _param(str(error)))
    if isinstance(error, OutOfMemory):
        return Problem(503, str(error), "overloaded_error", "out_of_memory")
    if isinstance(error, Cancelled):
        return Problem(499, "the request was cancelled", "server_error", "cancelled")
    if isinstance(error, DeviceError):
        return Problem(500, str(error), "server_error", "device_error")
    if isinstance(error, (ModelError, DownloadError)):
        # Their messages name files of this machine, which are nobody's business but the log's.
        return Problem(503, "the model could not be loaded", "server_error", "model_not_loaded")
    return Problem(500, "internal error", "server_error", "internal_error")


def noted(error: BaseException) -> Problem:
    """``problem(error)``, and a line in the log if it is the server's fault."""
    found = problem(error)
    if not isinstance(error, LilyError):
        # Its message may quote what a user wrote, so only its kind and place are told.
        place = "".join(traceback.format_tb(error.__traceback__))
        _log.error("internal error: %s\n%s", type(error).__name__, place)
    elif found.status >= 500 and not isinstance(error, ServerError):
        _log.error("%s: %s", type(error).__name__, error)
    return found


def _param(message: str) -> str | None:
    found = _SUBJECT.match(message)
    return found[1] if found and found[1] not in _NOT_FIELDS else None
