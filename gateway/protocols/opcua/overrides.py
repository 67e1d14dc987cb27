"""The methods of the folder of overrides: main is asked, and answers in words (S25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncua import ua

from gateway.link.messages import Answer
from gateway.protocols.opcua.access import GatewayUser
from gateway.protocols.opcua.methods import Method, Parameter
from gateway.protocols.opcua.modules import Ask

_STRING, _BOOLEAN = ua.VariantType.String, ua.VariantType.Boolean
_LONG_MS = 60_000.0  # a large set is compiled in every worker before it is in force

_CONSTRAINT = Parameter("Constraint", _STRING, "MODULE/CONSTRAINT, as verdicts name it; never a critical one")
_REASON = Parameter("Reason", _STRING, "Why, for the audit log")
_FOR = Parameter("For", _STRING, "How long from now, such as 30 min")
_OUTPUTS = (
    Parameter("Done", _BOOLEAN, "False: refused, and nothing changed"),
    Parameter("Because", _STRING, "Why it was refused; else empty"),
)


def override_methods(folder: ua.NodeId, ask: Ask) -> dict[str, tuple[Method, str]]:
    """Request, Confirm and Release of the folder, by name. Main decides who may release."""

    def method(
        role: str, inputs: tuple[Parameter, ...], verb: str, arguments: Callable[[list[Any]], dict[str, Any]]
    ) -> Method:
        async def run(user: GatewayUser, values: list[Any]) -> list[Any]:
            return _told(await ask(verb, arguments(values), user, _LONG_MS))

        return Method(object_id=folder, role=role, inputs=inputs, outputs=_OUTPUTS, run=run)

    return {
        "Request": (
            method("operator", (_CONSTRAINT, _REASON, _FOR), "override.request", _asked),
            "Asks that a standard constraint be overridden; another account must confirm it",
        ),
        "Confirm": (
            method("engineer", (_CONSTRAINT,), "override.confirm", _named),
            "Puts an override that another account asked for in force",
        ),
        "Release": (
            method("operator", (_CONSTRAINT,), "override.release", _named),
            "Ends an override or takes a request back: for either of its two persons and any engineer",
        ),
    }


def _asked(values: list[Any]) -> dict[str, Any]:
    constraint, reason, lasting = values
    return {"constraint": constraint or "", "reason": reason or "", "for": lasting or ""}


def _named(values: list[Any]) -> dict[str, Any]:
    return {"constraint": values[0] or ""}


def _told(answer: Answer) -> list[Any]:
    return [answer.ok, "" if answer.ok else answer.error]
