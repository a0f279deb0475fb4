"""A trace as a stream of block references: flat arrays of dense block ids, fit for millions of them."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulator.trace import Segment, Trace, shared_segments

BlockIds = Sequence[int]


@dataclass(frozen=True, slots=True)
class BlockTrace:
    """References to blocks 0..unique_blocks-1, request after request.

    `blocks` and `tokens` have one item a reference, `ends` the end of each request in them. `chained` says that a
    block always follows the same one (or always begins a prompt), so that an id stands for a whole prefix.
    """

    blocks: "array[int]" = field(repr=False)
    tokens: "array[int]" = field(repr=False)
    ends: "array[int]" = field(repr=False)
    unique_blocks: int
    chained: bool

    @classmethod
    def from_ids(cls, requests: Iterable[BlockIds], block_tokens: int | Sequence[int] = 16) -> "BlockTrace":
        """From lists of ids. `block_tokens` is the size of every block, or of the blocks of each request."""
        blocks, tokens, ends = array("q"), array("q"), array("q")
        dense: dict[int, int] = {}
        follows: dict[int, int] = {}
        chained = True
        for i, request in enumerate(requests):
            size = block_tokens if isinstance(block_tokens, int) else block_tokens[i]
            if size < 1:
                raise ValueError(f"a block needs at least one token, not {size}")
            before = -1
            for block_id in request:
                block = dense.setdefault(block_id, len(dense))
                chained = chained and follows.setdefault(block, before) == before
                before = block
                blocks.append(block)
                tokens.append(size)
            ends.append(len(blocks))
        return cls(blocks, tokens, ends, len(dense), chained)

    @classmethod
    def from_trace(cls, trace: Trace) -> "BlockTrace":
        """One block a segment, in the trace's order: the same block where model, scope, salt and all keys so far agree.

        Segments that the requests of a chain share as objects are not looked at again.
        """
        blocks, tokens, ends = array("q"), array("q"), array("q")
        roots: dict[tuple[str, str, str], int] = {}
        nodes: dict[tuple[int, str], int] = {}
        last: dict[tuple[str, int], tuple[tuple[Segment, ...], int]] = {}
        for request in trace:
            group = (request.model, request.scope, request.salt)
            root = roots.setdefault(group, -1 - len(roots))
            before, start = last.get((request.chain, root), ((), 0))
            shared = shared_segments(before, request.segments)
            last[request.chain, root] = (request.segments, len(blocks))
            blocks.extend(blocks[start : start + shared])
            tokens.extend(tokens[start : start + shared])
            node = blocks[-1] if shared else root
            for segment in request.segments[shared:]:
                node = nodes.setdefault((node, segment.key), len(nodes))
                blocks.append(node)
                tokens.append(segment.tokens)
            ends.append(len(blocks))
        return cls(blocks, tokens, ends, len(nodes), True)

    def largest_tokens(self) -> list[int]:
        """Tokens of each block, the most where references to it differ."""
        largest = [0] * self.unique_blocks
        for block, tokens in zip(self.blocks, self.tokens, strict=True):
            if tokens > largest[block]:
                largest[block] = tokens
        return largest
