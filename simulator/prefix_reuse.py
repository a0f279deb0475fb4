"""What a cached prefix saves, and what it changes: the same questions in full and from a shared beginning.

Two modes, as in `simulator.generate`: naive reuse differs by rounding, chunked reuse not at all.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from simulator.chat import prompt_ids
from simulator.generate import prefill, prefill_prefix, resume
from simulator.model.loading import LoadedModel

CHUNK = 64
QUESTIONS = ("Can I keep a book longer?", "Where do I return a broken toy?")
RULES = """You answer questions from readers of a small town library. Follow these rules in every answer.
Be brief: two sentences are enough for most questions, and a list of at most three points for the rest.
The library opens on weekdays from ten to six, on Saturdays from nine to one, and stays closed on Sundays and holidays.
Anyone who lives or works in the town may have a card. Children under twelve need the signature of a parent.
A lost card costs two coins to replace. A card that nobody used for three years is closed without notice.
Books are lent for four weeks, magazines for one week, films and music for two weeks, toys and games for three weeks.
A loan can be renewed twice unless another reader waits for the item. Renew at the desk, by telephone or on the website.
Late items cost ten cents a day, never more than the price of the item. Children pay no late fees at all.
Damaged items go to the desk, not into the return box. Do not try to repair them: tape and glue make things worse.
Readers may reserve up to five items. A reserved item waits for seven days behind the desk, sorted by name.
The reading room has twelve computers. Readers may use one for an hour, longer if nobody waits for a place.
Printing costs five cents a page in black and twenty in colour. Scanning is free, and so is the wireless network.
Please keep your voice low near the shelves and the reading room.
Groups can book the room upstairs for meetings that are open to everyone. Food is allowed there, but not among shelves.
Story time for children is on Wednesday afternoon. The book club meets on the first Thursday of each month.
New books are shown by the entrance for two weeks before they may be lent. Suggestions for purchases are welcome.
Never give out what another reader has borrowed, and never promise that an item will be back on a certain day.
If you do not know an answer, say so and name the telephone number of the desk: 555 0142."""


@dataclass(frozen=True, slots=True)
class ReuseRow:
    """One question. `delta` is the largest difference of any logit at any position that both runs computed."""

    question: str
    prompt_tokens: int
    full_s: float
    computed_tokens: int
    reuse_s: float
    delta: float
    same_choice: bool


@dataclass(frozen=True, slots=True)
class ReuseMode:
    """`chunk` is None for naive reuse. The prefix holds `cached_tokens` after one prefill of `prefill_s`."""

    chunk: int | None
    cached_tokens: int
    prefill_s: float
    rows: tuple[ReuseRow, ...]


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    prefix_tokens: int
    naive: ReuseMode
    exact: ReuseMode


def measure_prefix_reuse(
    loaded: LoadedModel,
    *,
    rules: str = RULES,
    questions: Sequence[str] = QUESTIONS,
    chunk: int = CHUNK,
    clock: Callable[[], float] = time.perf_counter,
) -> PrefixReuse:
    """Runs every question in full and from the prefix, in both modes."""
    prompts = [
        prompt_ids(loaded, [{"role": "system", "content": rules}, {"role": "user", "content": question}])
        for question in questions
    ]
    prefix_ids = shared_beginning(prompts)
    modes = [_measure(loaded, prefix_ids, prompts, questions, size, clock) for size in (None, chunk)]
    return PrefixReuse(len(prefix_ids), modes[0], modes[1])


def shared_beginning(prompts: Sequence[Sequence[int]]) -> list[int]:
    """The ids that all prompts begin with. Cut from whole prompts, a prefix cannot end inside a merged token."""
    shared = []
    for column in zip(*prompts, strict=False):
        if any(token != column[0] for token in column):
            break
        shared.append(column[0])
    return shared


def _measure(
    loaded: LoadedModel,
    prefix_ids: Sequence[int],
    prompts: Sequence[Sequence[int]],
    questions: Sequence[str],
    chunk: int | None,
    clock: Callable[[], float],
) -> ReuseMode:
    started = clock()
    prefix = prefill_prefix(loaded.model, prefix_ids, chunk=chunk)
    prefill_s = clock() - started
    rows = []
    for question, prompt in zip(questions, prompts, strict=True):
        started = clock()
        prefill(loaded.model, prompt, chunk=chunk)
        middle = clock()
        reused = resume(loaded.model, prefix, prompt)
        ended = clock()
        full = prefill(loaded.model, prompt, chunk=chunk, all_logits=True).logits[:, reused.reused :]
        tail = resume(loaded.model, prefix, prompt, all_logits=True).logits
        rows.append(
            ReuseRow(
                question=question,
                prompt_tokens=len(prompt),
                full_s=middle - started,
                computed_tokens=reused.computed,
                reuse_s=ended - middle,
                delta=float((full - tail).abs().max()),
                same_choice=torch.equal(full.argmax(-1), tail.argmax(-1)),
            )
        )
    return ReuseMode(chunk, prefix.cached, prefill_s, tuple(rows))
