"""A prefix-cache engine: find the cached beginning of a prompt, compute the rest, keep what may be kept.

Exact by construction. A prompt is always computed in pieces of one block, cut at multiples of the block size, and only
whole blocks that were computed that way are kept and reused. A run with reuse is therefore the tail of the very
sequence of operations of the run without, and its logits are the same bits. Hence also: the last prompt token is never
reused (its logits start the answer), keys and values of decoded tokens are never kept (their matrices have another
shape, so they round differently), and requests run one at a time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simulator.block_index import BlockPrefixIndex
from simulator.errors import UsageError
from simulator.forward import LlamaForward
from simulator.kv_cache import BlockStore, SequenceKv, Workspace
from simulator.prefix_index import DEFAULT_BLOCK_SIZE, Lease, Match, PrefixIndex, blocks_in_budget
from simulator.retention import Keep, Retention
from simulator.sampling import greedy
from simulator.trace import Usage

Pick = Callable[[Tensor], Tensor]
ONE_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One prompt. `readable` caps the tokens that may be reused (None: all that are held).

    `keep` says which of the prompt's beginnings are kept for how long; None keeps all whole blocks until they are
    evicted for space, an empty tuple keeps nothing.
    """

    tokens: Sequence[int]
    salt: str = ""
    readable: int | None = None
    keep: tuple[Keep, ...] | None = None
    max_new_tokens: int = 0
    end_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ChunkTime:
    """Seconds of one forward pass over `tokens` tokens from position `start` on."""

    start: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Served:
    """What a request cost. `usage` is in model tokens; `logits` (1, V) are the prompt's last.

    `kv_bytes` are the bytes of all blocks kept after it, `peak_bytes` those of all tensors while it ran.

    `restored_tokens` were known to the index but without tensors (a resumed replay) and were computed again, which no
    time here includes. `prefill_s` includes look-up and `assemble_s`.
    """

    usage: Usage
    reused_tokens: int
    computed_tokens: int
    restored_tokens: int
    output_ids: tuple[int, ...]
    ended: bool
    prefill_s: float
    assemble_s: float
    decode_s: float
    chunks: tuple[ChunkTime, ...]
    kv_bytes: int
    peak_bytes: int
    stored_blocks: int
    evicted_blocks: int
    logits: Tensor


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt computed without any cache: the reference for time and for every bit."""

    logits: Tensor
    kv: SequenceKv
    seconds: float
    chunks: tuple[ChunkTime, ...]


class Engine:
    """One model, one prefix index, one block store. Time in seconds is passed in and must not go back (ValueError)."""

    def __init__(
        self,
        forward: LlamaForward,
        *,
        block_size: int = DEFAULT_BLOCK_SIZE,
        budget_bytes: int | None = None,
        index: PrefixIndex | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`index` replaces the default one; it brings its own block size and capacity."""
        if index is None:
            block_bytes = forward.kv_shape.token_bytes * block_size
            blocks = None if budget_bytes is None else blocks_in_budget(budget_bytes, block_bytes)
            index = BlockPrefixIndex(block_size, blocks)
        self.forward = forward
        self.index = index
        self.store = BlockStore(forward.kv_shape, index.block_size)
        self._retention = Retention(index)
        self._workspace = Workspace(forward.kv_shape, forward.context)
        self._timer = timer

    def serve(self, request: EngineRequest, *, now: float, pick: Pick = greedy) -> Served:
        """Runs a prompt and decodes up to `max_new_tokens`. Raises UsageError for a prompt that cannot be run."""
        self.check(request)
        tokens = list(request.tokens)
        began = self._timer()
        match, pin, expired = self._admit(request, now)
        looked_up_s = self._timer() - began
        try:
            kv = SequenceKv(self._workspace, len(tokens) + max(0, request.max_new_tokens - 1))
            present = self._adopt(kv, match)
            began = self._timer()
            kv.assemble()
            assemble_s = self._timer() - began
            if kv.length < match.tokens:
                self._prefill(kv, tokens[: match.tokens])
                self._file(kv, match.blocks[present:], present)
            logits, chunks = self._prefill(kv, tokens)
            match_after, new, evicted = self._keep(request, now)
            first = len(match_after.blocks) - len(new)
            self._file(kv, new, first)
            kv.remember(match_after.blocks)
        finally:
            self.index.release(pin, now=now)
        began = self._timer()
        output, ended = self._decode(kv, logits, request, pick)
        return Served(
            usage=_usage(request, match.tokens, match_after.tokens, len(output)),
            reused_tokens=match.tokens,
            computed_tokens=len(tokens) - match.tokens,
            restored_tokens=match.tokens - present * self.index.block_size,
            output_ids=output,
            ended=ended,
            prefill_s=looked_up_s + assemble_s + sum(chunk.seconds for chunk in chunks),
            assemble_s=assemble_s,
            decode_s=self._timer() - began,
            chunks=chunks,
            kv_bytes=self.index.occupancy(now=now).used * self.store.block_bytes,
            peak_bytes=self.store.bytes + kv.bytes,
            stored_blocks=len(new),
            evicted_blocks=len(expired) + len(evicted),
            logits=logits,
        )

    def remember(self, request: EngineRequest, *, now: float) -> int:
        """Does the books of `serve` without the model; tensors are computed when a later request needs them.

        Returns the tokens that `serve` would have reused. Raises UsageError as it does.
        """
        self.check(request)
        match, pin, _ = self._admit(request, now)
        self._keep(request, now)
        self.index.release(pin, now=now)
        return match.tokens

    def prefill_without_cache(self, tokens: Sequence[int]) -> Prefilled:
        """The same prompt from nothing, in the same pieces; nothing is read from the cache or kept."""
        kv = SequenceKv(Workspace(self.forward.kv_shape), len(tokens))
        kv.assemble()
        logits, chunks = self._prefill(kv, list(tokens))
        return Prefilled(logits, kv, sum(chunk.seconds for chunk in chunks), chunks)

    def is_exact(self, served: Served, request: EngineRequest, reference: Prefilled) -> bool:
        """True if the logits and every kept block of the prompt are the reference's, bit for bit."""
        size = self.index.block_size
        usable = self.index.peek(request.tokens, salt=request.salt).blocks
        return torch.equal(served.logits, reference.logits) and all(
            torch.equal(self.store[block], reference.kv.read(i * size, (i + 1) * size))
            for i, block in enumerate(usable)
            if block in self.store
        )

    def check(self, request: EngineRequest) -> None:
        """Raises UsageError for an empty prompt, one that the window cannot hold, and ids the model does not have."""
        count, context = len(request.tokens), self.forward.context
        if not count:
            raise UsageError("the prompt is empty", "a prompt needs at least one token")
        if request.max_new_tokens < 0:
            raise UsageError(f"cannot decode {request.max_new_tokens} tokens", "ask for 0 or more")
        if count + request.max_new_tokens > context:
            raise UsageError(
                f"a prompt of {count} tokens and {request.max_new_tokens} to decode do not fit the model's window of "
                f"{context}",
                "shorten the prompt, or replay it scaled down",
            )
        if not 0 <= min(request.tokens) <= max(request.tokens) < self.forward.vocabulary:
            raise UsageError(
                f"token ids must be from 0 to {self.forward.vocabulary - 1}", "use the tokenizer of this model"
            )

    def _admit(self, request: EngineRequest, now: float) -> tuple[Match, Lease, tuple[int, ...]]:
        """The reusable prefix, pinned for as long as the request runs; what lapsed by `now` is dropped before."""
        expired = () if request.keep is None else self._retention.expire(now)
        self.store.drop(expired)
        last = len(request.tokens) - 1
        limit = last if request.readable is None else min(request.readable, last)
        match = self.index.match(request.tokens, now=now, salt=request.salt, limit=limit)
        return match, self.index.lease(request.tokens, now=now, salt=request.salt, limit=limit), expired

    def _adopt(self, kv: SequenceKv, match: Match) -> int:
        """Adopts the matched blocks up to the first one without a tensor. -> blocks adopted"""
        present = 0
        while present < len(match.blocks) and match.blocks[present] in self.store:
            present += 1
        kv.adopt(self.store, match.blocks[:present])
        return present

    def _prefill(self, kv: SequenceKv, tokens: list[int]) -> tuple[Tensor, tuple[ChunkTime, ...]]:
        """Runs the tokens that `kv` does not hold yet, in pieces that end at multiples of the block size."""
        size = self.index.block_size
        times: list[ChunkTime] = []
        logits = torch.empty(0)
        while kv.length < len(tokens):
            start = kv.length
            stop = min(len(tokens), start - start % size + size)
            began = self._timer()
            last = stop == len(tokens)
            logits = self.forward(tokens[start:stop], kv.reserve(stop - start), start, last)
            kv.advance(stop - start)
            times.append(ChunkTime(start, stop - start, self._timer() - began))
        return logits, tuple(times)

    def _keep(self, request: EngineRequest, now: float) -> tuple[Match, tuple[int, ...], tuple[int, ...]]:
        """Enters the blocks to keep into the index. -> the path kept, the new ids on it, the ids evicted for it"""
        if request.keep is None:
            done = self.index.insert(request.tokens, now=now, salt=request.salt)
            self.store.drop(done.evicted)
            return done.match, done.new, done.evicted
        kept = request.tokens[: max((keep.tokens for keep in request.keep), default=0)]
        held = len(self.index.peek(kept, salt=request.salt).blocks)
        self._retention.make_room(len(kept) // self.index.block_size - held, now)
        done = self.index.insert(kept, now=now, salt=request.salt)
        self.store.drop(done.evicted)
        self._retention.forget(done.evicted)
        self._retention.renew(kept, done.match.blocks, request.keep, request.salt, now)
        return done.match, done.new, done.evicted

    def _file(self, kv: SequenceKv, blocks: Sequence[int], first: int) -> None:
        """Stores copies of consecutive blocks of `kv`; block number `first` of the prompt is the first of them."""
        size = self.index.block_size
        for position, block in enumerate(blocks, first):
            if block not in self.store:
                self.store.store(block, kv.read(position * size, (position + 1) * size))

    def _decode(
        self, kv: SequenceKv, logits: Tensor, request: EngineRequest, pick: Pick
    ) -> tuple[tuple[int, ...], bool]:
        output: list[int] = []
        while len(output) < request.max_new_tokens:
            if output:
                logits = self.forward(output[-1:], kv.reserve(1), kv.length)
                kv.advance(1)
            output.append(int(pick(logits)))
            if output[-1] in request.end_ids:
                return tuple(output), True
        return tuple(output), False


def _usage(request: EngineRequest, reused: int, kept: int, output: int) -> Usage:
    """Billing classes of a run: reused tokens are read, newly kept ones are written, the others are plain input."""
    hours = [k.tokens for k in request.keep or () if k.ttl_s >= ONE_HOUR_S]
    one_hour = max(reused, min(kept, max(hours, default=0)))
    written = max(one_hour, kept)
    return Usage(
        input_tokens=len(request.tokens) - written,
        cache_read_tokens=reused,
        cache_creation_5m_tokens=written - one_hour,
        cache_creation_1h_tokens=one_hour - reused,
        output_tokens=output,
    )
