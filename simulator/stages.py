"""The results of the walkthrough's stages. `stage` is the number that a reader knows each by."""

from dataclasses import dataclass
from typing import Any, ClassVar

from simulator.prefix_reuse import PrefixReuse


@dataclass(frozen=True, slots=True)
class ModelStage:
    stage: ClassVar[str] = "0"
    name: str
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int


@dataclass(frozen=True, slots=True)
class TemplateStage:
    stage: ClassVar[str] = "1"
    text: str


@dataclass(frozen=True, slots=True)
class TokenStage:
    """`tokens` are (id, spelling) of the whole prompt."""

    stage: ClassVar[str] = "2"
    count: int
    tokens: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class ForwardStage:
    """`top` are (text, id, probability) of the likeliest next tokens."""

    stage: ClassVar[str] = "3"
    logits_shape: tuple[int, ...]
    top: tuple[tuple[str, int, float], ...]


@dataclass(frozen=True, slots=True)
class TemperatureRow:
    """`effective_candidates` is exp(entropy): how many equally likely tokens would be as uncertain."""

    temperature: float
    top_probability: float
    effective_candidates: float


@dataclass(frozen=True, slots=True)
class TemperatureStage:
    stage: ClassVar[str] = "4"
    rows: tuple[TemperatureRow, ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    loop: str
    seconds: float
    text: str
    equals_generate: bool


@dataclass(frozen=True, slots=True)
class GreedyStage:
    """One layer's keys have `key_shape` (1, kv_heads, positions, head_dim)."""

    stage: ClassVar[str] = "5"
    loops: tuple[Decoded, ...]
    cache_length: int
    key_shape: tuple[int, ...]
    cache_bytes: int
    bytes_per_token: int
    layers: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class SpeedRow:
    new_tokens: int
    no_cache_s: float
    cache_s: float


@dataclass(frozen=True, slots=True)
class SpeedStage:
    stage: ClassVar[str] = "5b"
    rows: tuple[SpeedRow, ...]


@dataclass(frozen=True, slots=True)
class SampledRow:
    seed: int
    equals_generate: bool
    text: str


@dataclass(frozen=True, slots=True)
class SamplingStage:
    stage: ClassVar[str] = "6"
    temperature: float
    top_k: int
    top_p: float
    rows: tuple[SampledRow, ...]


@dataclass(frozen=True, slots=True)
class PrefixStage:
    stage: ClassVar[str] = "6b"
    reuse: PrefixReuse


@dataclass(frozen=True, slots=True)
class ResponseStage:
    stage: ClassVar[str] = "7"
    response: dict[str, Any]


Stage = (
    ModelStage
    | TemplateStage
    | TokenStage
    | ForwardStage
    | TemperatureStage
    | GreedyStage
    | SpeedStage
    | SamplingStage
    | PrefixStage
    | ResponseStage
)
