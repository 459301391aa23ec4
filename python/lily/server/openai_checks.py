"""Checks of OpenAI requests that depend on the server: its limits and its model.

This file owns what is refused or warned of beyond a field's own range. It knows no response.
"""

from __future__ import annotations

from lily.server.errors import BadRequest
from lily.server.host import Card
from lily.server.openai_requests import ChatRequest, Sampled
from lily.server.settings import Settings
from lily.server.wire import unknown_fields


def check_choices(number: int, settings: Settings) -> None:
    """Refuse more answers to one request than the server makes."""
    if number > settings.max_choices:
        raise BadRequest(
            f"{number} answers were asked for, at most {settings.max_choices}", param="n"
        )


def check_bias(asked: Sampled, card: Card) -> None:
    """Refuse a bias for what is no token."""
    for token_id in map(int, asked.logit_bias or ()):
        if token_id >= card.vocab_size:
            raise BadRequest(
                f"logit_bias names token {token_id}, expected 0 to {card.vocab_size - 1}",
                param="logit_bias",
            )


def warnings(asked: Sampled, card: Card) -> list[str]:
    """What is not done as it was asked for."""
    limit = asked.max_tokens
    if isinstance(asked, ChatRequest):
        limit = asked.max_completion_tokens or limit
    clamped = card.clamped("max_tokens", limit)
    return [*unknown_fields(asked), *card.other_model(asked.model), *clamped]
