# ruff: noqa: E402
import os

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from simulator.sampling import apply_temperature, apply_top_k, apply_top_p, greedy, sample_next


@pytest.fixture
def logits():
    return torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.8, 50, 0.9), (0.3, 5, 0.5), (1.7, 1000, 0.99), (1.5, 5000, 0.05), (1.0, 1, 0.0)],
)
def test_same_bits_as_the_warpers(logits, temperature, top_k, top_p):
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    actual = apply_temperature(logits, temperature)
    assert torch.equal(actual, expected)
    expected, actual = TopKLogitsWarper(top_k)(None, expected), apply_top_k(actual, top_k)
    assert torch.equal(actual, expected)
    assert torch.equal(apply_top_p(actual, top_p), TopPLogitsWarper(top_p)(None, expected))


def test_arguments_are_left_alone(logits):
    before = logits.clone()
    apply_temperature(logits, 0.5)
    apply_top_k(logits, 3)
    apply_top_p(logits, 0.5)
    sample_next(logits, temperature=0.5, top_k=3, top_p=0.5)
    assert torch.equal(logits, before)


def test_kept_sets_by_hand():
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    assert apply_top_k(logits, 2).isfinite().tolist() == [[False, True, False, True]]
    assert apply_top_p(logits, 0.65).isfinite().tolist() == [[False, True, False, True]]
    assert apply_top_p(logits, 0.75).isfinite().tolist() == [[False, True, True, True]]
    assert apply_top_p(logits, 0.0).isfinite().sum() == 1
    assert apply_top_k(torch.tensor([2.0, 2.0, 1.0]), 1).isfinite().tolist() == [True, True, False]


def test_top_p_met_exactly_keeps_no_spare_token():
    even = torch.zeros(1, 4)
    assert apply_top_p(even, 0.5).isfinite().sum() == 2
    assert torch.equal(apply_top_p(even, 0.5), TopPLogitsWarper(0.5)(None, even))


def test_greedy_and_temperature_zero(logits):
    assert greedy(logits).tolist() == logits.max(dim=-1).indices.tolist()
    assert sample_next(logits, temperature=0).tolist() == greedy(logits).tolist()
    assert sample_next(logits, top_k=1).tolist() == greedy(logits).tolist()


def test_a_seed_fixes_the_draw_and_seeds_differ(logits):
    draws = [tuple(sample_next(logits, generator=torch.Generator().manual_seed(s)).tolist()) for s in (1, 1, 2, 3, 4)]
    assert draws[0] == draws[1]
    assert len(set(draws)) > 1


def test_draws_follow_the_probabilities():
    """20,000 draws stray by 0.0035 at most (one standard deviation): 0.02 is 5.6 of them, odds below 1 in 10 million.

    The seed is fixed, so the odds are those of a false alarm on a torch with other random numbers.
    """
    probabilities = torch.tensor([0.5, 0.3, 0.2, 0.0])
    drawn = sample_next(probabilities.log().expand(20_000, 4), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(drawn.bincount(minlength=4) / 20_000, probabilities, atol=0.02)
    assert (drawn != 3).all()


def test_warped_draws_follow_the_warped_probabilities():
    """The same odds through all three filters: temperature 0.5 squares, top-k 3 and top-p 0.9 cut."""
    probabilities = torch.tensor([0.4, 0.3, 0.2, 0.06, 0.04])
    logits = probabilities.log().expand(20_000, 5)
    drawn = sample_next(
        logits, temperature=0.5, top_k=3, top_p=0.9, generator=torch.Generator().manual_seed(0)
    ).bincount(minlength=5)
    # Squares .16 .09 .04 weigh .552 .310 .138 of the three; .552 + .310 falls short of .9, so all three stay.
    assert torch.allclose(drawn / 20_000, torch.tensor([0.552, 0.310, 0.138, 0.0, 0.0]), atol=0.02)
    assert drawn[3:].sum() == 0


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (apply_temperature, 0.0),
        (apply_temperature, -1.0),
        (apply_temperature, float("nan")),
        (apply_top_k, 0),
        (apply_top_p, -0.1),
        (apply_top_p, 1.1),
    ],
)
def test_values_out_of_range_are_refused(logits, function, value):
    with pytest.raises(ValueError, match=r"must"):
        function(logits, value)
