"""Keys and values by block: one copy of each block for all who share it, and a buffer for the request that runs.

Shapes: a block is (layers, 2, H, block, D), a running request's buffer (layers, 2, H, room, D); keys are index 0 of
the second axis, values index 1. H key/value heads of size D.

A block is written once, when it is stored, and never again. A request adopts a prefix by reference. Attention needs
its keys and values in one piece, so before the first token runs the adopted blocks are copied into the request's own
buffer (`assemble`); new tokens are appended there in place, without moving what is there.
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
        """Forgets blocks; ids without a tensor are passed over. Requests that adopted one keep it alive."""
        for block_id in block_ids:
            self._blocks.pop(block_id, None)


class SequenceKv:
    """Keys and values of one running request: `length` positions, the first of them adopted from shared blocks."""

    def __init__(self, shape: KvShape, room: int) -> None:
        self._shape = shape
        self._adopted: tuple[Tensor, ...] = ()
        self._buffer: Tensor | None = None
        self._room = room
        self.length = 0

    @property
    def bytes(self) -> int:
        """Bytes of the request's own buffer: none before `assemble`, whatever was adopted."""
        return 0 if self._buffer is None else self._buffer.untyped_storage().nbytes()

    def adopt(self, blocks: Sequence[Tensor]) -> None:
        """Takes (layers, 2, H, block, D) blocks as the first positions, by reference: nothing is copied."""
        if self.length or self._buffer is not None:
            raise ValueError("a prefix is adopted before anything else")
        self._adopted = tuple(blocks)
        self.length = sum(block.shape[3] for block in self._adopted)

    def assemble(self) -> None:
        """Allocates the buffer and copies the adopted blocks into it, once."""
        if self._buffer is not None:
            return
        self._buffer = self._shape.allocate(max(self._room, self.length))
        at = 0
        for block in self._adopted:
            size = block.shape[3]
            self._buffer[:, :, :, at : at + size].copy_(block)
            at += size
        self._adopted = ()

    def reserve(self, count: int) -> Tensor:
        """The buffer, (layers, 2, H, room, D), with room for `count` more positions after `length`.

        Grows by half when the room was underestimated, so appending costs a constant per token over time.
        """
        self.assemble()
        assert self._buffer is not None
        needed = self.length + count
        if needed > self._buffer.shape[3]:
            larger = self._shape.allocate(max(needed, self._buffer.shape[3] * 3 // 2))
            larger[:, :, :, : self.length].copy_(self._buffer[:, :, :, : self.length])
            self._buffer = larger
        return self._buffer

    def advance(self, count: int) -> None:
        """Counts `count` positions that were written into the reserved room."""
        if self._buffer is None or self.length + count > self._buffer.shape[3]:
            raise ValueError(f"{count} positions were not reserved")
        self.length += count

    def read(self, start: int, stop: int) -> Tensor:
        """(layers, 2, H, stop - start, D), a view of the buffer."""
        if self._buffer is None or not 0 <= start <= stop <= self.length:
            raise ValueError(f"positions {start} to {stop} are not in the buffer")
        return self._buffer[:, :, :, start:stop]
