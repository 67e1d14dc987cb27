"""The methods of the folder of constraint modules: main is asked, and answers in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asyncua import ua

from gateway.link.messages import Answer
from gateway.protocols.opcua.access import GatewayUser
from gateway.protocols.opcua.methods import Method, Parameter

_STRING, _BYTES = ua.VariantType.String, ua.VariantType.ByteString
_BOOLEAN, _INT32 = ua.VariantType.Boolean, ua.VariantType.Int32
_LONG_MS = 60_000.0  # a large set is compiled in every worker before it is in force

Ask = Callable[[str, dict[str, Any], GatewayUser, float], Awaitable[Answer]]

_NAME = Parameter("Name", _STRING, "File name in the watched folder, such as tank.json")
_PRIORITY = Parameter("Priority", _INT32, "0 to 15 instead of the file's own; -1: the file's own")
_SHADOW = Parameter("Shadow", _BOOLEAN, "Judge it beside the modules in force, without effect")
_MODULE = Parameter("Module", _STRING, "Id of the module")
_OUTPUTS = (
    Parameter("Done", _BOOLEAN, "False: refused, and nothing changed"),
    Parameter("Because", _STRING, "Why it was refused, or what still waits; else empty"),
)


def module_methods(folder: ua.NodeId, ask: Ask) -> dict[str, tuple[Method, str]]:
    """Load, LoadText, Unload, Rollback, Approve and Promote of the folder, by name. All need an engineer."""

    def method(
        inputs: tuple[Parameter, ...], verb: str, arguments: Callable[[list[Any]], dict[str, Any]]
    ) -> Method:
        async def run(user: GatewayUser, values: list[Any]) -> list[Any]:
            return _told(await ask(verb, arguments(values), user, _LONG_MS))

        return Method(object_id=folder, role="engineer", inputs=inputs, outputs=_OUTPUTS, run=run)

    def of_module(verb: str) -> Method:
        return method((_MODULE,), verb, lambda values: {"module": values[0] or ""})

    source = Parameter("Source", _BYTES, "The module file's bytes")
    text = Parameter("Text", _STRING, "The module file's text")
    return {
        "Load": (
            method((_NAME, source, _PRIORITY, _SHADOW), "runtime.load", _loaded),
            "Puts a module in force; where that may weaken the rules it waits for approval",
        ),
        "LoadText": (
            method((_NAME, text, _PRIORITY, _SHADOW), "runtime.load", _loaded),
            "As Load, for a source in JSON",
        ),
        "Unload": (of_module("runtime.unload"), "Takes a module out once that is approved"),
        "Rollback": (
            of_module("runtime.rollback"),
            "Goes back to the accepted revision before; an empty id: of the module that changed last",
        ),
        "Approve": (of_module("runtime.approve"), "Approves a change that waits"),
        "Promote": (of_module("runtime.promote"), "Puts a module that is judged in shadow in force"),
    }


def _loaded(values: list[Any]) -> dict[str, Any]:
    name, data, priority, shadow = values
    given: dict[str, Any] = {"name": name or "", "data": data if data is not None else b""}
    if priority != -1:
        given["priority"] = priority
    return given | ({"shadow": True} if shadow else {})


def _told(answer: Answer) -> list[Any]:
    if not answer.ok:
        return [False, answer.error]
    modules = answer.result if isinstance(answer.result, list) else []
    waiting = [
        f"{module.get('id')}: {'; '.join(module.get('refused_because', []))}"
        for module in modules
        if isinstance(module, dict) and module.get("state") == "pending"
    ]
    return [True, "; ".join(waiting)]
