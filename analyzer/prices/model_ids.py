"""What a logged model id says: which model, and through which door it was called."""

import re
from dataclasses import dataclass
from functools import lru_cache

_DOOR = re.compile(
    r"^(?:arn:[^/]*/|bedrock/|vertex_ai/|anthropic/)?(?:(?P<region>us-gov|us|eu|jp|au|apac|global)\.)?"
    r"(?P<bedrock>anthropic\.)?(?P<rest>claude-.*)$"
)
_TAIL = re.compile(r"(?:-(?:\d{8}|latest))?(?:-v\d+(?::\d+)?)?$")
_FAMILY_FIRST = re.compile(r"^claude-(?P<family>[a-z]+)-(?P<major>\d)(?:[-.](?P<minor>\d{1,2}))?$")
_NUMBER_FIRST = re.compile(r"^claude-(?P<major>\d)(?:[-.](?P<minor>\d{1,2}))?-(?P<family>[a-z]+)$")


@dataclass(frozen=True, slots=True)
class ModelId:
    """A Claude model id taken apart."""

    canonical: str
    """The bare id without date, marker, region or version: `claude-opus-4-5`, `claude-3-5-haiku`."""
    generation: tuple[int, int] | None
    """`(4, 5)`; None for a name without a number, such as a preview."""
    region: str | None
    """The id's region prefix (`us`, `global`, ...), if it has one."""
    first_party: bool
    """A bare Claude API id: no region, no Bedrock prefix, no `@date`."""


@lru_cache(maxsize=1024)
def parse_model_id(model: str) -> ModelId | None:
    """Take a logged id apart; None if it is no Claude id (other vendors, `<synthetic>`).

    `[1m]` is Claude Code's context marker, not a price tier. `anthropic.` and `-v1:0` are Amazon Bedrock's,
    `@date` is Google Cloud's; dated ids exist up to the 4.5 generation (Claude API docs, Models overview).
    """
    text = re.sub(r"\[\d+m\]$", "", model.strip().lower())
    door = _DOOR.match(text)
    if door is None:
        return None
    base, at, _ = door["rest"].partition("@")
    bare = _TAIL.sub("", base)
    region = door["region"]
    first_party = region is None and door["bedrock"] is None and not at and text.startswith("claude-")
    number = _FAMILY_FIRST.match(bare)
    reverse = number is None
    if number is None:
        number = _NUMBER_FIRST.match(bare)
    if number is None:
        return ModelId(bare, None, region, first_party)
    major, minor = int(number["major"]), int(number["minor"] or 0)
    version = f"{major}-{minor}" if minor else f"{major}"
    # Ids up to 3.7 put the number first, later ones the family; some gateways turn the new ones round.
    old = major < 4
    canonical = f"claude-{version}-{number['family']}" if old else f"claude-{number['family']}-{version}"
    if old and not reverse and major < 3:
        return ModelId(bare, None, region, first_party)
    return ModelId(canonical, (major, minor), region, first_party)


def is_regional(model: str) -> bool:
    """Whether the id itself says where the request ran (`us.`, `eu.`, `us-gov.`, ..., and `global.`)."""
    parsed = parse_model_id(model)
    return parsed is not None and parsed.region is not None


def region_unknown(model_or_message_id: str) -> bool:
    """Whether this id means Amazon Bedrock without naming a region, where base rates are a guess.

    Given a message id: true for `msg_bdrk_...` (the caller adds `and not is_regional(model)`, since the model id
    may still name it). Given a model id: true for `anthropic.claude-...` without a region prefix.
    """
    if model_or_message_id.startswith("msg_"):
        return model_or_message_id.startswith("msg_bdrk_")
    return model_or_message_id.lower().startswith("anthropic.claude-")
