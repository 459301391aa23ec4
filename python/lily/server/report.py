"""What is noted of every answer when it ends.

This file owns the log line of an answer, which has its text only if that was asked for, and hands
the numbers to the metrics.
"""

from __future__ import annotations

import json
import logging

from lily.server.answer import Answer
from lily.server.metrics import Metrics

_log = logging.getLogger("lily.server")


class Report:
    """To be called with each answer that has ended."""

    def __init__(self, metrics: Metrics, log_text: bool) -> None:
        self._metrics = metrics
        self._log_text = log_text

    def __call__(self, answer: Answer) -> None:
        self._metrics.answer(answer)
        done = answer.completion
        if done is None:
            _log.info("answer: none")
            return
        _log.info("answer: %s", done.speed)
        if self._log_text:
            _log.info("answer text: %s", json.dumps([done.reasoning, done.text]))
