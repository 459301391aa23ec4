"""The engine of Lily: what runs below lily.Engine."""

from collections.abc import Callable, Sequence

import numpy
import numpy.typing

from lily._native import kernels as kernels


class Cancel:
    """
    A flag that any thread may set; the running call that was given it stops within one step or chunk.
    """

    def __init__(self) -> None: ...

    def set(self) -> None: ...

    def clear(self) -> None: ...

    @property
    def is_set(self) -> bool: ...

class Sampled:
    """
    What the device proposes for the next position, from the logits that are ready.
    """

    @property
    def token_id(self) -> int: ...

    @property
    def exact(self) -> bool:
        """
        False: the filters reach past the 64 candidates; draw from the full row.
        """

    @property
    def logsumexp(self) -> float:
        """Of the raw row, at temperature 1."""

class Session:
    """
    One timeline of tokens with its KV cache and recurrent state. One thread at a time.
    """

    @property
    def tokens(self) -> list[int]:
        """Everything accepted so far."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    def set_sampler(self, *, temperature: float, top_k: int, top_p: float, min_p: float, seed: int) -> None:
        """
        temperature 0: greedy; top_k 0, top_p 1 and min_p 0 turn the filters off.
        """

    def prefill(self, tokens: Sequence[int] | numpy.typing.NDArray[numpy.uint32], *, checkpoints: Sequence[int] = (), cancel: Cancel | None = None, progress: Callable[[int, int], None] | None = None) -> int:
        """
        Makes `tokens`, the whole wanted prompt, the session's timeline, and its last logits ready. Returns how many tokens were reused.
        """

    def sampled(self) -> Sampled:
        """Draws with the present sampler from the logits that are ready."""

    def step(self, token_id: int, *, cancel: Cancel | None = None) -> Sampled:
        """Accepts token_id, runs one decode step, and draws."""

    def logits(self) -> numpy.typing.NDArray[numpy.float32]:
        """A copy of the whole row, [vocab]."""

    def candidates(self) -> tuple[numpy.typing.NDArray[numpy.uint32], numpy.typing.NDArray[numpy.float32]]:
        """Ids and logits, up to 64, best first; ties: lower id first."""

    def score(self, tokens: Sequence[int] | numpy.typing.NDArray[numpy.uint32], *, cancel: Cancel | None = None) -> tuple[numpy.typing.NDArray[numpy.float32], numpy.typing.NDArray[numpy.uint32]]:
        """
        Fresh pass over tokens: (log-probability of tokens[1:], the arg-max prediction at each of those places). The tokens become the timeline.
        """

    def all_logits(self, tokens: Sequence[int] | numpy.typing.NDArray[numpy.uint32]) -> numpy.typing.NDArray[numpy.float32]:
        """[n, vocab]. The tokens become the timeline."""

    def save(self) -> None:
        """Keeps a snapshot of the present place in the engine's prefix cache."""

    def close(self) -> None: ...

class Engine:
    """A loaded model and the sessions on it."""

    def __init__(self, path: str, *, device: str = 'auto', max_context: int = 0, kv_dtype: str = 'auto', cache_bytes: int = -1, memory_limit_bytes: int = 0, threads: int = 0, chunk_tokens: int = 0) -> None:
        """
        max_context 0: chosen from config and memory; cache_bytes -1: chosen; memory_limit_bytes 0: what the machine has; threads 0: all; chunk_tokens 0: chosen.
        """

    @property
    def device(self) -> str: ...

    @property
    def device_description(self) -> str: ...

    @property
    def vocab_size(self) -> int:
        """Rows of lm_head."""

    @property
    def max_context(self) -> int: ...

    def plan(self) -> dict[str, int]: ...

    def cache_stats(self) -> dict[str, int]: ...

    def session(self, max_tokens: int = 0) -> Session:
        """max_tokens 0: the engine's max_context."""

    def close(self) -> None:
        """
        From any thread; running calls end after their chunk, later ones raise InvalidInput.
        """

def describe(path: str) -> dict[str, object]:
    """
    What a folder holds and what would be refused; reads config and tensor headers only.
    """

def plan(path: str, *, device: str = 'auto', max_context: int = 0, kv_dtype: str = 'auto', cache_bytes: int = -1, memory_limit_bytes: int = 0) -> dict[str, int]:
    """The memory that loading would plan; raises what it would raise."""

class Encoder:
    """The privacy gate's encoder. Any thread may run it; callers take turns."""

    def __init__(self, folder: str, *, device: str = 'cpu', threads: int = 0) -> None:
        """
        Reads config.json and maps model.safetensors; raises ModelError for what is not sound. threads 0: all.
        """

    @property
    def device(self) -> str: ...

    @property
    def device_description(self) -> str: ...

    @property
    def window_tokens(self) -> int: ...

    def run(self, ids: numpy.typing.NDArray[numpy.uint32], forms: numpy.typing.NDArray[numpy.uint32], lengths: numpy.typing.NDArray[numpy.uint32]) -> tuple[numpy.typing.NDArray[numpy.float32], numpy.typing.NDArray[numpy.float32]]:
        """
        Windows of `lengths` rows each, one behind the other, in ids and forms: (logits of tokens [rows, 1 + 4 * labels], logits of windows [windows, topics + subjects]).
        """
