"""One view per stage of the walkthrough."""

import json
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from simulator.cli.rendering import inert, kib, pairs, seconds, table
from simulator.cli.texts import STAGE_TEXTS, Language, label
from simulator.prefix_reuse import PrefixReuse
from simulator.stages import (
    ForwardStage,
    GreedyStage,
    ModelStage,
    PrefixStage,
    ResponseStage,
    SamplingStage,
    SpeedStage,
    Stage,
    TemperatureStage,
    TemplateStage,
    TokenStage,
)

Say = Callable[..., str]
FLATTENED = ("3", "4", "6")
"""Stages whose figures differ visibly between 4-bit and full-precision weights."""


def show_stage(stage: Stage, console: Console, language: Language, *, with_note: bool) -> None:
    title, sentence = STAGE_TEXTS[language][stage.stage]
    console.print(Rule(Text(f"[{stage.stage}] {title}", "bold"), align="left", style="dim"))
    console.print(Text(sentence, "italic"))
    console.print()

    def say(text: str, **values: object) -> str:
        return label(language, text, **values)

    for part in _parts(stage, say):
        console.print(Padding(part, (0, 0, 0, 2), expand=False))
    if with_note:
        console.print()
        console.print(Padding(Text(say("Q4_1"), "yellow"), (0, 0, 0, 2), expand=False))
    console.print()


def _parts(stage: Stage, say: Say) -> list[RenderableType]:
    match stage:
        case ModelStage():
            return [_model(stage, say)]
        case TemplateStage():
            return [Text(inert(stage.text.removesuffix("\n")), "green")]
        case TokenStage():
            return _tokens(stage, say)
        case ForwardStage():
            return _forward(stage, say)
        case TemperatureStage():
            rows = table(say("temperature"), say("top probability"), say("effective candidates"), right=(0, 1, 2))
            for row in stage.rows:
                rows.add_row(f"{row.temperature}", f"{row.top_probability:.4f}", f"{row.effective_candidates:,.2f}")
            return [rows]
        case GreedyStage():
            return _greedy(stage, say)
        case SpeedStage():
            rows = table("N", say("no cache"), say("K/V cache"), say("faster"), right=(0, 1, 2, 3))
            for speed in stage.rows:
                ratio = f"{speed.no_cache_s / speed.cache_s:.1f}x"
                rows.add_row(str(speed.new_tokens), seconds(speed.no_cache_s), seconds(speed.cache_s), ratio)
            return [rows]
        case SamplingStage():
            return _sampling(stage, say)
        case PrefixStage():
            return _prefix(stage.reuse, say)
        case ResponseStage():
            return [Text(inert(json.dumps(stage.response, indent=2, ensure_ascii=False)))]


def _model(stage: ModelStage, say: Say) -> RenderableType:
    heads = say("{queries} for queries, {kv} for keys and values", queries=stage.heads, kv=stage.kv_heads)
    return pairs(
        [
            (say("model"), stage.name),
            (say("parameters"), f"{stage.parameters:,}"),
            (say("layers"), f"{stage.layers}, hidden={stage.hidden}"),
            (say("heads"), heads),
            (say("vocabulary"), f"{stage.vocabulary:,}"),
            (say("context"), f"{stage.context:,}"),
        ]
    )


def _tokens(stage: TokenStage, say: Say) -> list[RenderableType]:
    shown = stage.tokens[:12]
    line = Text()
    for token_id, spelling in shown:
        line.append(inert(spelling), "green")
        line.append(f"\u00a0{token_id}", "dim")
        line.append("  ")
    return [Text(say("{count} tokens, the first {shown}:", count=stage.count, shown=len(shown))), line]


def _forward(stage: ForwardStage, say: Say) -> list[RenderableType]:
    shape = ", ".join(f"{size:,}".replace(",", "") for size in stage.logits_shape)
    rows = table(say("next token"), say("id"), say("probability"), right=(1, 2))
    for text, token_id, probability in stage.top:
        rows.add_row(repr(inert(text)), str(token_id), f"{probability:.4f}")
    return [Text(f"{say('logits')} ({shape})  {say('(batch, tokens, vocabulary)')}"), Text(), rows]


def _yes(equal: bool, say: Say) -> Text:
    return Text(say("yes"), "green") if equal else Text(say("no"), "bold red")


def _greedy(stage: GreedyStage, say: Say) -> list[RenderableType]:
    rows = table(say("loop"), say("time"), say("equals model.generate"), say("answer"), right=(1,), fold=(3,))
    for loop in stage.loops:
        rows.add_row(say(loop.loop), seconds(loop.seconds), _yes(loop.equals_generate, say), Text(inert(loop.text)))
    _, kv_heads, _, head_dim = stage.key_shape
    formula = f"{stage.layers} x 2 x {kv_heads} x {head_dim} x {stage.element_bytes} = {stage.bytes_per_token:,} bytes"
    held = say(
        "{length} tokens, keys of a layer {shape}, {size}",
        length=stage.cache_length,
        shape=stage.key_shape,
        size=kib(stage.cache_bytes),
    )
    rule = say("layers x (K+V) x kv heads x head size x bytes")
    facts = pairs([(say("cache"), held), (say("a token"), f"{kib(stage.bytes_per_token)} = {formula}"), ("", rule)])
    return [rows, Text(), facts]


def _sampling(stage: SamplingStage, say: Say) -> list[RenderableType]:
    rows = table(say("seed"), say("equals model.generate"), say("answer"), right=(0,), fold=(2,))
    for row in stage.rows:
        rows.add_row(str(row.seed), _yes(row.equals_generate, say), Text(inert(row.text)))
    return [Text(f"temperature={stage.temperature}, top_k={stage.top_k}, top_p={stage.top_p}"), Text(), rows]


def _prefix(reuse: PrefixReuse, say: Say) -> list[RenderableType]:
    parts: list[Any] = [Text(f"{say('prefix')}: {say('{count} tokens', count=reuse.prefix_tokens)}")]
    for mode in (reuse.naive, reuse.exact):
        time = seconds(mode.prefill_s)
        if mode.chunk is None:
            heading = say("in one piece (prefill {time})", time=time)
        else:
            heading = say(
                "in chunks of {chunk}, {cached} tokens cached (prefill {time})",
                chunk=mode.chunk,
                cached=mode.cached_tokens,
                time=time,
            )
        rows = table(
            say("question"),
            say("full"),
            say("time"),
            say("computed"),
            say("time"),
            say("max|Δlogits|"),
            say("same choice"),
            right=(1, 2, 3, 4, 5),
            fold=(0,),
        )
        for row in mode.rows:
            delta = Text(f"{row.delta:.2e}" if row.delta else "0", "" if row.delta else "bold green")
            rows.add_row(
                row.question,
                str(row.prompt_tokens),
                seconds(row.full_s),
                str(row.computed_tokens),
                seconds(row.reuse_s),
                delta,
                _yes(row.same_choice, say),
            )
        parts += [Text(), Text(heading, "bold"), rows]
    return parts
