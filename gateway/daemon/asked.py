"""What each question over the internal port may say: a word nobody reads would be an act nobody meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from gateway.config.problems import nearest
from gateway.core.decision import RequestClass
from gateway.core.errors import GatewayError
from gateway.core.tag import TagId

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?|[+-]?\d+/\d+", re.ASCII)
_MOST = Fraction(10**300)  # inputs of a what-if are floats
_SHOWN = 60  # characters
_MOST_DIGITS = 400  # of a number as it is written: what is longer, or has an exponent of more, is none
_MODEL = frozenset({"model", "keep_armed"})
_MODULE = frozenset({"module"})
_POINT = frozenset({"point"})
_NOTHING: frozenset[str] = frozenset()

MAY_SAY: Mapping[str, frozenset[str]] = {
    "status": _NOTHING,
    "tags": _NOTHING,
    "decisions": _POINT | {"limit", "before"},
    "explain": frozenset({"id"}),
    "decide": _POINT | {"class", "deadline_ms", "what_if", "proposal"},
    "mode": _POINT | {"mode"},
    "ack": frozenset({"source"}),
    "binding.print": _POINT,
    "binding.show": _POINT,
    "binding.sign": _POINT | {"text", "file", "by"},
    "stop-writes": frozenset({"resume"}),
    "runtime.list": _NOTHING,
    "runtime.coverage": _NOTHING,
    "runtime.load": frozenset({"name", "data", "priority", "shadow"}),
    "runtime.unload": _MODULE,
    "runtime.approve": _MODULE | {"change"},
    "runtime.rollback": _MODULE,
    "runtime.promote": _MODULE,
    "override.list": _NOTHING,
    "override.request": frozenset({"constraint", "reason", "for"}),
    "override.confirm": frozenset({"constraint"}),
    "override.release": frozenset({"constraint"}),
    "model.list": _NOTHING,
    "model.load": _MODEL | {"bundle"},
    "model.unload": _MODEL,
    "model.rollback": _MODEL,
}


class NotGivenError(GatewayError):
    """A question lacks something or says something impossible."""


def refusal(verb: str, given: Iterable[str]) -> str:
    """Why a question is not looked at: a word of it is unknown to its verb. Empty where none is."""
    known = MAY_SAY[verb]
    unknown = [word for word in given if word not in known]
    if not unknown:
        return ""
    named = ", ".join(f"`{word}`{nearest(word, known)}" for word in unknown)
    allowed = ", ".join(f"`{word}`" for word in sorted(known)) or "nothing"
    return f"what `{verb}` was given is unknown to it: {named}; it takes {allowed}"


def request_class(given: object) -> RequestClass | None:
    """The class a request names; None when it names none."""
    if not given:
        return None
    if str(given) not in RequestClass.__members__:
        problem = f"`{given}` is not a class of requests; known: {', '.join(RequestClass.__members__)}"
        raise NotGivenError(problem)
    return RequestClass[str(given)]


def numbers(given: object, allowed: tuple[TagId, ...], what: str) -> dict[TagId, Fraction] | None:
    """Exact numbers by tag from a question; None when it gave none."""
    if not given:
        return None
    if not isinstance(given, dict):
        problem = f"give {what}s as a table of tag and number"
        raise NotGivenError(problem)
    found: dict[TagId, Fraction] = {}
    for name, value in given.items():
        if name not in allowed:
            problem = f"`{name}` is not an {what} of this decision point; known: {', '.join(allowed)}"
            raise NotGivenError(problem)
        number = _number(value)
        if number is None:
            problem = f"`{_shown(value)}` for `{name}` is not a number"
            raise NotGivenError(problem)
        found[TagId(name)] = number
    return found


def flag(args: Mapping[str, object], name: str) -> bool:
    """Whether a question says true; false where it says nothing. A text that says `false` is not true."""
    given = args.get(name)
    if given is None or isinstance(given, bool):
        return bool(given)
    problem = f"`{name}` is true or false, not `{_shown(given)}`"
    raise NotGivenError(problem)


def _number(value: object) -> Fraction | None:
    """Exactly; None for what is none, or too long to work with: its exponent alone would fill the memory."""
    if isinstance(value, bool):
        return Fraction(int(value))
    try:
        text = str(value).strip()
    except ValueError:  # a whole number of thousands of digits
        return None
    if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
        return None
    try:
        found = Fraction(text)
    except ZeroDivisionError:
        return None
    return found if abs(found) <= _MOST else None


def _shown(value: object) -> str:
    """The beginning of what was given, for a sentence."""
    try:
        return str(value)[:_SHOWN]
    except ValueError:
        return "a number of thousands of digits"
