# ruff: noqa: E402
"""Blocks are shared by reference, written once, and counted to the byte."""

import pytest

torch = pytest.importorskip("torch")

from simulator.forward import KvShape
from simulator.kv_cache import BlockStore, SequenceKv, Workspace

SHAPE = KvShape(layers=2, heads=3, head_size=8, dtype=torch.float32)
SMOLLM2 = {"layers": 30, "heads": 3, "head_size": 64}


def filled(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 2, 3, count, 8, generator=torch.Generator().manual_seed(seed))


def stored(*seeds: int) -> BlockStore:
    store = BlockStore(SHAPE, 4)
    for block, seed in enumerate(seeds):
        store.store(block, filled(4, seed))
    return store


def test_a_token_of_smollm2_is_45_kib_and_half_of_it_in_bfloat16() -> None:
    assert KvShape(**SMOLLM2, dtype=torch.float32).token_bytes == 45 * 1024
    assert KvShape(**SMOLLM2, dtype=torch.bfloat16).token_bytes == 45 * 512


def test_the_store_counts_its_tensors_to_the_byte() -> None:
    store = stored(1, 2)
    assert store.bytes == 2 * store.block_bytes == 2 * 4 * SHAPE.token_bytes
    store.drop([0, 77])
    assert store.bytes == store.block_bytes


def test_a_block_is_a_copy_and_its_id_cannot_be_written_again() -> None:
    source = filled(4)
    store = BlockStore(SHAPE, 4)
    store.store(5, source)
    source.zero_()
    assert torch.equal(store[5], filled(4))
    with pytest.raises(ValueError, match="never written"):
        store.store(5, filled(4))


@pytest.mark.parametrize("kv", [filled(3), filled(4).double()])
def test_only_whole_blocks_of_the_right_kind_are_stored(kv: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="a block is"):
        BlockStore(SHAPE, 4).store(0, kv)


def test_adopting_takes_no_memory_and_assembling_copies_once() -> None:
    store = stored(1, 2)
    kv = SequenceKv(Workspace(SHAPE), 12)
    kv.adopt(store, [0, 1])
    assert (kv.length, kv.bytes) == (8, 0)
    assert kv.assemble() == 2
    assert kv.bytes == 8 * SHAPE.token_bytes
    kv.reserve(3)
    assert kv.bytes == 11 * SHAPE.token_bytes
    assert torch.equal(kv.read(0, 8), torch.cat([filled(4, 1), filled(4, 2)], dim=3))
    buffer = kv.reserve(1)
    assert kv.assemble() == 0
    assert kv.reserve(1) is buffer


def test_a_prefix_that_is_in_place_is_not_copied_again() -> None:
    store, work = stored(1, 2, 3), Workspace(SHAPE)
    first = SequenceKv(work, 12)
    first.adopt(store, [0, 1])
    first.assemble()
    first.remember([0, 1])
    for blocks, copies in (([0, 1], 0), ([0, 2], 1), ([0], 0), ([0, 1], 1), ([1, 0], 2)):
        kv = SequenceKv(work, 12)
        kv.adopt(store, blocks)
        assert kv.assemble() == copies
        assert torch.equal(kv.read(0, 4 * len(blocks)), torch.cat([store[block] for block in blocks], dim=3))
    longer = SequenceKv(work, 40)
    longer.adopt(store, [1, 0])
    assert longer.assemble() == 2, "a larger buffer starts empty"


def test_two_sequences_write_behind_one_prefix_and_neither_block_nor_sibling_changes() -> None:
    store = stored(1)
    first, second = SequenceKv(Workspace(SHAPE), 8), SequenceKv(Workspace(SHAPE), 8)
    for each, seed in ((first, 10), (second, 20)):
        each.adopt(store, [0])
        each.reserve(4)[:, :, :, 4:8] = filled(4, seed)
        each.advance(4)
    first.reserve(0)[:, :, :, :4] = 0.0
    assert torch.equal(store[0], filled(4, 1))
    assert torch.equal(second.read(0, 4), filled(4, 1))
    assert torch.equal(second.read(4, 8), filled(4, 20))


def test_appending_moves_nothing_while_there_is_room_and_keeps_all_when_it_grows() -> None:
    kv = SequenceKv(Workspace(SHAPE), 4)
    address = None
    moves = 0
    for position in range(64):
        buffer = kv.reserve(1)
        moves += address is not None and buffer.data_ptr() != address
        address = buffer.data_ptr()
        buffer[:, :, :, position] = float(position)
        kv.advance(1)
    assert torch.equal(kv.read(0, 64)[0, 0, 0, :, 0], torch.arange(64.0))
    assert moves < 10, "growing by half moves a logarithmic number of times"


def test_what_was_not_reserved_cannot_be_counted_or_read() -> None:
    kv = SequenceKv(Workspace(SHAPE), 4)
    with pytest.raises(ValueError, match="not reserved"):
        kv.advance(1)
    kv.reserve(2)
    with pytest.raises(ValueError, match="not in the buffer"):
        kv.read(0, 1)
    with pytest.raises(ValueError, match="before anything else"):
        kv.adopt(stored(), [])
