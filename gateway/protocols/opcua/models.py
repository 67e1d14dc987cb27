"""The methods of the folder of models: main is asked, and answers in words (S27)."""

from __future__ import annotations

from typing import Any

from asyncua import ua

from gateway.link.messages import Answer
from gateway.protocols.opcua.access import GatewayUser
from gateway.protocols.opcua.methods import Method, Parameter
from gateway.protocols.opcua.modules import Ask

_STRING, _BOOLEAN = ua.VariantType.String, ua.VariantType.Boolean
_LONG_MS = 60_000.0  # the new worker loads, tests itself and gets warm before it takes over

_MODEL = Parameter("Model", _STRING, "A model of the configuration; empty where there is one")
_BUNDLE = Parameter("Bundle", _STRING, "A bundle's folder under bundles_dir")
_KEEP = Parameter("KeepArmed", _BOOLEAN, "Armed points stay armed; only where the house rules let them")
_OUTPUTS = (
    Parameter("Done", _BOOLEAN, "False: refused, and the bundle in service still serves"),
    Parameter("Because", _STRING, "Why it was refused; else empty"),
)


def model_methods(folder: ua.NodeId, ask: Ask) -> dict[str, tuple[Method, str]]:
    """Load, Unload and Rollback of the folder, by name. All need an engineer."""

    def method(verb: str, *inputs: Parameter) -> Method:
        names = ("model", *(("bundle",) if _BUNDLE in inputs else ()), "keep_armed")

        async def run(user: GatewayUser, values: list[Any]) -> list[Any]:
            given = dict(zip(names, values, strict=True))
            args = {name: given[name] or "" for name in names[:-1]} | {"keep_armed": given["keep_armed"]}
            return _told(await ask(verb, args, user, _LONG_MS))

        return Method(object_id=folder, role="engineer", inputs=inputs, outputs=_OUTPUTS, run=run)

    return {
        "Load": (
            method("model.load", _MODEL, _BUNDLE, _KEEP),
            "Lets another bundle take over between two decisions, once it is tested and warm",
        ),
        "Unload": (
            method("model.unload", _MODEL, _KEEP),
            "Lets the bundle that the configuration names serve again",
        ),
        "Rollback": (
            method("model.rollback", _MODEL, _KEEP),
            "Lets the bundle that served before serve again",
        ),
    }


def _told(answer: Answer) -> list[Any]:
    return [answer.ok, "" if answer.ok else answer.error]
