"""Rules that were changed by hand since a table brought them: a table could not say what they say now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class ByHandError(ValueError):
    """Rules do not fit into a table; a sentence for each."""

    def __init__(self, sentences: Iterable[str]) -> None:
        super().__init__("\n".join(sentences))


def differing(rules: Iterable[Mapping[str, Any]], same: Iterable[str], known: Iterable[str]) -> list[str]:
    """A sentence for each rule that says otherwise than the first of its row, or more than a table can.

    `same` are the keys that one line of a table says once for all its rules; `known` are all it can say.
    """
    first: dict[str, Mapping[str, Any]] = {}
    found: list[str] = []
    for rule in rules:
        one = first.setdefault(str(rule["row"]), rule)
        found += [
            f"row `{rule['row']}`: rule `{rule['id']}` has another `{key}` than `{one['id']}`; "
            "give it a row of its own, or make them alike"
            for key in same
            if rule.get(key, "") != one.get(key, "")
        ]
        found += [
            f"row `{rule['row']}`: rule `{rule['id']}` says `{key}`, which a table cannot"
            for key in sorted(rule.keys() - set(known))
        ]
    return found
