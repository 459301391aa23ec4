"""Counters for Prometheus.

This file owns the names of the metrics. They hold numbers only, never text of a user.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lily.server.answer import Answer
from lily.server.core import Core

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_RATES = (1, 3, 10, 30, 100, 300, 1000, 3000)


class Metrics:
    """The metrics of one server; ``watch`` it once, then ``text`` shows them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        here = self.registry
        self._requests = Counter(
            "lily_requests", "HTTP requests by path and status.", ["path", "status"], registry=here
        )
        self._answers = Counter(
            "lily_answers", "Answers by the reason for their end.", ["reason"], registry=here
        )
        self._prompt = Counter("lily_prompt_tokens", "Tokens of prompts.", registry=here)
        self._cached = Counter("lily_cached_tokens", "Those not computed again.", registry=here)
        self._completion = Counter("lily_completion_tokens", "Tokens generated.", registry=here)
        self._first = Histogram(
            "lily_time_to_first_token_seconds", "Waiting included.", buckets=_SECONDS, registry=here
        )
        self._speed = Histogram(
            "lily_decode_tokens_per_second", "Of each answer.", buckets=_RATES, registry=here
        )

    def watch(self, core: Core) -> None:
        """Show how many jobs ``core`` runs and holds."""
        gauges = {
            "lily_running": ("Jobs that run.", lambda: core.running),
            "lily_waiting": ("Jobs that wait.", lambda: core.waiting),
            "lily_model_loaded": ("1 while in memory.", lambda: core.host.state == "ready"),
        }
        for name, (text, value) in gauges.items():
            Gauge(name, text, registry=self.registry).set_function(value)

    def request(self, path: str, status: int) -> None:
        """Count a request; ``path`` is one of the server's own or "other"."""
        self._requests.labels(path, str(status)).inc()

    def answer(self, answer: Answer) -> None:
        """Count an answer that has ended."""
        done = answer.completion
        self._answers.labels(done.finish_reason if done else "error").inc()
        if done is None:
            return
        self._prompt.inc(done.usage.prompt_tokens)
        self._cached.inc(done.usage.cached_tokens)
        self._completion.inc(done.usage.completion_tokens)
        if done.usage.completion_tokens:
            self._first.observe(done.timings.time_to_first_token_s)
        if done.timings.decode_tokens:
            self._speed.observe(done.timings.decode_tokens_per_s)

    def text(self) -> bytes:
        """What Prometheus scrapes."""
        return generate_latest(self.registry)
