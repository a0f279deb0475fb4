"""Keys and values by block: one copy of each block for all who share it, and a buffer for the request that runs.

Shapes: a block is (layers, 2, H, block, D), a running request's buffer (layers, 2, H, room, D); keys are index 0 of
the second axis, values index 1. H key/value heads of size D.

A block is written once, when it is stored, and never again. A request adopts a prefix by reference. Attention needs
its keys and values in one piece, so before the first token runs those adopted blocks that are not there yet are copied
into the buffer of the running request (`assemble`); new tokens are appended there in place, moving nothing.
"""

from collections.abc import Iterable, Sequence

from torch import Tensor

from simulator.forward import KvShape


class BlockStore:
    """Block tensors under the ids of a prefix index. Each id is stored once; its tensor is never written again."""

    def __init__(self, shape: KvShape, block_size: int) -> None:
        self.shape = shape
        self.block_size = block_size
        self._blocks: dict[int, Tensor] = {}

    @property
    def block_bytes(self) -> int:
        return self.shape.token_bytes * self.block_size

    @property
    def bytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(block.untyped_storage().nbytes() for block in self._blocks.values())

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._blocks

    def __getitem__(self, block_id: int) -> Tensor:
        """(layers, 2, H, block, D); the caller must not write to it."""
        return self._blocks[block_id]

    def store(self, block_id: int, kv: Tensor) -> None:
        """Keeps a copy of `kv`, (layers, 2, H, block, D). Raises ValueError for another shape or an id in use."""
        expected = (self.shape.layers, 2, self.shape.heads, self.block_size, self.shape.head_size)
        if tuple(kv.shape) != expected or kv.dtype != self.shape.dtype:
            raise ValueError(f"a block is {expected} of {self.shape.dtype}, not {tuple(kv.shape)} of {kv.dtype}")
        if block_id in self._blocks:
            raise ValueError(f"block {block_id} is stored already, and a stored block is never written")
        block = self.shape.allocate(self.block_size)
        block.copy_(kv)
        self._blocks[block_id] = block

    def drop(self, block_ids: Iterable[int]) -> None:
        """Forgets blocks; ids without a tensor are passed over. The caller drops none that runs."""
        for block_id in block_ids:
            self._blocks.pop(block_id, None)


class Workspace:
    """The one buffer that requests run in, one after another, with `room` positions or more.

    Memory that was never written to is not taken from the system, so room for a whole window costs what the longest
    request used of it (`bytes`). The workspace remembers which blocks its beginning holds: a request that goes on where
    the last one ended finds its prefix in place.
    """

    def __init__(self, shape: KvShape, room: int = 0) -> None:
        self.shape = shape
        self.buffer = shape.allocate(room)
        self.used = 0
        self.resident: list[int] = []

    @property
    def bytes(self) -> int:
        return self.used * self.shape.token_bytes

    def grow(self, room: int, keep: int = 0) -> None:
        """Room for `room` positions, the first `keep` of which stay as they are."""
        if room <= self.buffer.shape[3]:
            return
        larger = self.shape.allocate(room)
        larger[:, :, :, :keep].copy_(self.buffer[:, :, :, :keep])
        self.buffer, self.used = larger, keep
        if not keep:
            self.resident = []


class SequenceKv:
    """Keys and values of one running request: `length` positions, the first of them adopted from shared blocks."""

    def __init__(self, workspace: Workspace, room: int) -> None:
        self._workspace = workspace
        self._room = room
        self._adopted: tuple[int, ...] = ()
        self._assembled = False
        self._store: BlockStore | None = None
        self.length = 0

    @property
    def bytes(self) -> int:
        """Bytes of the buffer that this request and those before it used."""
        return self._workspace.bytes

    def adopt(self, store: BlockStore, block_ids: Sequence[int]) -> None:
        """Takes stored blocks as the first positions, by reference: nothing is copied or allocated."""
        if self.length or self._assembled:
            raise ValueError("a prefix is adopted before anything else")
        self._store, self._adopted = store, tuple(block_ids)
        self.length = len(self._adopted) * store.block_size

    def assemble(self) -> int:
        """Brings the adopted blocks into one piece, once; those in place already stay. -> blocks copied"""
        if self._assembled:
            return 0
        self._assembled = True
        work = self._workspace
        work.grow(max(self._room, self.length))
        copied = 0
        for position, block in enumerate(self._adopted):
            if work.resident[position : position + 1] == [block]:
                continue
            assert self._store is not None
            size = self._store.block_size
            work.buffer[:, :, :, position * size : (position + 1) * size].copy_(self._store[block])
            copied += 1
            work.resident[position : position + 1] = [block]
        del work.resident[len(self._adopted) :]
        work.used = max(work.used, self.length)
        return copied

    def reserve(self, count: int) -> Tensor:
        """The buffer, (layers, 2, H, room, D), with room for `count` more positions after `length`.

        Grows by half when the room was underestimated, so appending costs a constant per token over time.
        """
        self.assemble()
        work = self._workspace
        if self.length + count > work.buffer.shape[3]:
            work.grow(max(self.length + count, work.buffer.shape[3] * 3 // 2), keep=self.length)
        work.used = max(work.used, self.length + count)
        return work.buffer

    def advance(self, count: int) -> None:
        """Counts `count` positions that were written into the reserved room."""
        if not self._assembled or self.length + count > self._workspace.buffer.shape[3]:
            raise ValueError(f"{count} positions were not reserved")
        self.length += count

    def read(self, start: int, stop: int) -> Tensor:
        """(layers, 2, H, stop - start, D), a view of the buffer."""
        if not self._assembled or not 0 <= start <= stop <= self.length:
            raise ValueError(f"positions {start} to {stop} are not in the buffer")
        return self._workspace.buffer[:, :, :, start:stop]

    def remember(self, block_ids: Sequence[int]) -> None:
        """Says which stored blocks the positions from 0 on are equal to, for the next request's sake."""
        self._workspace.resident = list(block_ids)
