"""Each rule of the prefix index, one at a time, on blocks of four tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulator.block_index import BlockPrefixIndex, chain_key, root_key
from simulator.no_index import NoPrefixIndex
from simulator.prefix_index import IntegrityError, PrefixIndex, blocks_in_budget
from simulator.radix_index import RadixPrefixIndex

Make = Callable[..., PrefixIndex]
A, B, C, D = ([n] * 4 for n in range(4))


@pytest.fixture(params=[BlockPrefixIndex, RadixPrefixIndex])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


def test_a_hit_is_the_shared_whole_blocks(make: Make) -> None:
    index = make(4)
    index.insert(A + B + [7, 7], now=0)
    assert index.match(A + B + [7, 7, 7, 7], now=0).tokens == 8
    assert index.match([*A, 1, 1, 1], now=0).tokens == 4
    assert index.match(B + A, now=0).tokens == 0
    assert index.match([], now=0).tokens == 0


def test_the_same_block_after_another_prefix_is_another_block(make: Make) -> None:
    index = make(4)
    first, second = index.insert(A + C, now=0), index.insert(B + C, now=0)
    assert not set(first.match.blocks) & set(second.match.blocks)


def test_salts_do_not_share(make: Make) -> None:
    index = make(4)
    index.insert(A, now=0, salt="x")
    assert index.match(A, now=0, salt="y").tokens == 0
    assert index.match(A, now=0, salt="x").tokens == 4


def test_limit_keeps_the_last_token_out_of_the_hit(make: Make) -> None:
    index = make(4)
    index.insert(A + B, now=0)
    assert index.match(A + B, now=0, limit=7).tokens == 4
    assert index.match(A + B, now=0, limit=-1).tokens == 0


def test_counters_are_in_tokens_and_a_lease_is_not_a_query(make: Make) -> None:
    index = make(4)
    index.insert(A + B, now=0)
    index.match([*A, 9], now=0)
    index.lease(A, now=0)
    counters = index.counters
    assert (counters.requests, counters.queries, counters.hits, counters.inserted) == (1, 5, 4, 8)


def test_inserting_twice_stores_once(make: Make) -> None:
    index = make(4)
    first, again = index.insert(A + B, now=0), index.insert(A + B, now=0)
    assert again.match == first.match
    assert again.new == ()


def test_eviction_starts_at_the_leaf_of_the_oldest_path(make: Make) -> None:
    index = make(4)
    old = index.insert(A + B, now=0).new
    young = index.insert(C + D, now=1).new
    assert index.evict(3, now=2) == (old[1], old[0], young[1])
    index.check_integrity()
    assert index.match(C + D, now=2).tokens == 4


def test_a_match_refreshes_recency(make: Make) -> None:
    index = make(4, 2)
    index.insert(A, now=0)
    index.insert(B, now=0)
    index.match(A, now=0)
    index.insert(C, now=0)
    assert (index.match(A, now=0).tokens, index.match(B, now=0).tokens) == (4, 0)


def test_insert_reports_what_it_evicted_and_never_eats_its_own_prefix(make: Make) -> None:
    index = make(4, 2)
    first = index.insert(A, now=0)
    full = index.insert(B + C + D, now=0)
    assert full.evicted == first.new
    assert full.match.tokens == 8
    assert index.insert(B + C + D, now=0).new == ()


def test_a_lease_protects_its_path_but_not_what_hangs_below(make: Make) -> None:
    index = make(4)
    ids = index.insert(A + B + C, now=0).new
    lease = index.lease(A + B, now=0)
    assert index.occupancy(now=0).evictable == 1
    assert index.evict(9, now=0) == (ids[2],)
    assert index.release(lease, now=0)
    assert not index.release(lease, now=0)
    assert index.evict(9, now=0) == (ids[1], ids[0])


def test_leases_on_one_block_count(make: Make) -> None:
    index = make(4)
    index.insert(A, now=0)
    one, two = index.lease(A, now=0), index.lease(A, now=0)
    index.release(one, now=0)
    assert index.evict(1, now=0) == ()
    index.release(two, now=0)
    assert len(index.evict(1, now=0)) == 1


def test_a_lease_holds_to_its_very_deadline_and_can_be_renewed(make: Make) -> None:
    index = make(4)
    index.insert(A, now=0)
    lease = index.lease(A, now=0, ttl=300)
    assert index.occupancy(now=299).pinned == 1
    assert index.renew(lease, now=299, ttl=300)
    assert index.occupancy(now=599).pinned == 1
    assert index.occupancy(now=599.001).pinned == 0
    assert not index.renew(lease, now=600, ttl=300)
    assert not index.release(lease, now=600)
    assert index.match(A, now=600).tokens == 4, "running out unpins, it does not evict"


def test_a_lease_of_another_index_is_refused(make: Make) -> None:
    index, other = make(4), make(4)
    for each in (index, other):
        each.insert(A, now=0)
    index.lease(A, now=0)
    assert not index.release(other.lease(A, now=0), now=0)
    assert index.occupancy(now=0).pinned == 1


def test_bad_arguments_change_nothing(make: Make) -> None:
    index = make(4)
    index.insert(A, now=5)
    with pytest.raises(ValueError, match="backwards"):
        index.match(A, now=4)
    with pytest.raises(ValueError, match="ttl"):
        index.lease(A, now=5, ttl=0)
    index.check_integrity()
    assert index.occupancy(now=5).pinned == 0
    for arguments in ((0,), (4, -1)):
        with pytest.raises(ValueError, match=r"must be|cannot be"):
            make(*arguments)


def test_no_room_stores_nothing(make: Make) -> None:
    index = make(4, 0)
    assert index.insert(A, now=0).match.tokens == 0
    index.check_integrity()


def test_chained_keys_commit_to_salt_and_order() -> None:
    keys = {chain_key(chain_key(root_key(salt), x), y) for salt in ("", "s") for x in (A, B) for y in (A, B)}
    assert len(keys) == 8


def test_a_key_collision_is_a_miss_not_a_wrong_hit() -> None:
    index = BlockPrefixIndex(4, hash_block=lambda parent, tokens: b"same")
    index.insert(A, now=0)
    assert index.match(B, now=0).tokens == 0
    assert index.match(A, now=0, salt="other").tokens == 0
    assert index.insert(B, now=0).new == ()
    assert index.match(A + A, now=0).tokens == 4
    index.check_integrity()


def test_many_queries_do_not_grow_the_eviction_queue() -> None:
    index = BlockPrefixIndex(4)
    index.insert(A, now=0)
    for _ in range(1000):
        index.match(A, now=0)
    assert len(index._candidates) < 100
    assert len(index.evict(1, now=0)) == 1


def test_integrity_notices_a_wrong_reference_count() -> None:
    index = BlockPrefixIndex(4)
    index.insert(A, now=0)
    next(iter(index._by_id.values())).refs = 1
    with pytest.raises(IntegrityError, match="reference counts"):
        index.check_integrity()


def test_a_byte_budget_holds_whole_blocks() -> None:
    assert blocks_in_budget(1000, 300) == 3
    with pytest.raises(ValueError, match="size"):
        blocks_in_budget(1, 0)


def test_the_baseline_counts_queries_and_keeps_nothing() -> None:
    index: PrefixIndex = NoPrefixIndex(4)
    assert index.insert(A, now=0).new == ()
    assert index.match(A, now=0).tokens == 0
    lease = index.lease(A, now=0, ttl=1)
    assert index.renew(lease, now=0, ttl=None)
    assert index.release(lease, now=9)
    assert index.evict(1, now=9) == ()
    assert index.occupancy(now=9).evictable == 0
    assert (index.counters.queries, index.counters.hits) == (4, 0)
    index.check_integrity()
