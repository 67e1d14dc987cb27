"""The methods of decision points: questions to main, answered only after main has decided."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from asyncua import ua

from gateway.core.errors import LinkBrokenError
from gateway.link.messages import Answer
from gateway.protocols.opcua.access import GatewayUser
from gateway.protocols.opcua.methods import Method, MethodRefusedError, Parameter
from gateway.protocols.opcua.models import model_methods
from gateway.protocols.opcua.modules import module_methods
from gateway.protocols.opcua.overrides import override_methods

_STRING, _DOUBLE = ua.VariantType.String, ua.VariantType.Double
_LONGEST_MS = 60_000.0
_DEFAULT_WAIT_MS = 5_000.0
_TEXT_LIMIT = 64 * 1024
_CLASSES = ("", "P0", "P1", "P2")
_MODES = ("off", "shadow", "advisory", "armed")

_DEADLINE = Parameter(
    "DeadlineMs", _DOUBLE, "Milliseconds until the answer is useless; 0: the point's own deadline"
)
_PRIORITY = Parameter("Priority", _STRING, "Class P0, P1 or P2; empty: the point's own class")
_OUTPUTS = (
    Parameter("Verdict", _STRING, "permitted, repaired, refused, undetermined or rejected"),
    Parameter("Setpoints", _STRING, "JSON object: tag to decimal text"),
    Parameter("Counterexample", _STRING, "A sentence in plant terms; empty when there is none"),
    Parameter("CertificateDigest", _STRING, "Digest of the certificate"),
    Parameter("DecisionId", _STRING, "Id of the decision; empty when it was rejected"),
    Parameter("Reason", _STRING, "Why it was not permitted, and what was overridden"),
)
Offer = tuple[Method, str]


class Asker(Protocol):
    """The link's side that answers questions."""

    async def ask(
        self, verb: str, args: dict[str, Any] | None = None, *, user: str = "", deadline_ms: float = 2000.0
    ) -> Answer:
        """Main's answer."""
        ...


class Requests:
    """Methods that ask main. `link` is None while there is no connection."""

    def __init__(self) -> None:
        self.link: Asker | None = None
        self.asked = 0

    def decision(self, node: ua.NodeId, point: str) -> Offer:
        """RequestDecision: decide now, or what would be decided on these inputs (never written)."""
        what_if = Parameter(
            "WhatIf", _STRING, "JSON object of input tag to number; empty: the plant's own values"
        )
        run = self._decide(point, "what_if")
        method = Method(
            object_id=node, role="operator", inputs=(what_if, _DEADLINE, _PRIORITY), outputs=_OUTPUTS, run=run
        )
        return method, "Asks for a decision and returns it"

    def setpoints(self, node: ua.NodeId, point: str) -> Offer:
        """RequestSetpoints: have wanted setpoints checked like any proposal."""
        wanted = Parameter("Setpoints", _STRING, "JSON object of output tag to number")
        run = self._decide(point, "proposal")
        method = Method(
            object_id=node, role="operator", inputs=(wanted, _DEADLINE, _PRIORITY), outputs=_OUTPUTS, run=run
        )
        return method, "Asks whether setpoints are permitted and returns the decision"

    def mode(self, node: ua.NodeId, point: str) -> Offer:
        """SetMode: off, shadow, advisory or armed."""

        async def run(user: GatewayUser, values: list[Any]) -> list[Any]:
            (mode,) = values
            if mode not in _MODES:
                raise MethodRefusedError(ua.StatusCodes.BadInvalidArgument, f"`{mode}` is not a mode")
            answer = await self._ask("mode", {"point": point, "mode": mode}, user, _DEFAULT_WAIT_MS)
            if not answer.ok:
                raise MethodRefusedError(ua.StatusCodes.BadInvalidState, answer.error)
            return []

        inputs = (Parameter("Mode", _STRING, ", ".join(_MODES)),)
        return Method(object_id=node, role="engineer", inputs=inputs, outputs=(), run=run), "Sets the mode"

    def modules(self, folder: ua.NodeId) -> dict[str, Offer]:
        """Methods of the folder of constraint modules, by name."""
        return module_methods(folder, self._ask)

    def models(self, folder: ua.NodeId) -> dict[str, Offer]:
        """Methods of the folder of models, by name."""
        return model_methods(folder, self._ask)

    def overrides(self, folder: ua.NodeId) -> dict[str, Offer]:
        """Methods of the folder of overrides, by name."""
        return override_methods(folder, self._ask)

    def acknowledge(self, node: ua.NodeId) -> Offer:
        """Acknowledge: a person has seen a standing alarm."""

        async def run(user: GatewayUser, values: list[Any]) -> list[Any]:
            (source,) = values
            answer = await self._ask("ack", {"source": source or ""}, user, _DEFAULT_WAIT_MS)
            if not answer.ok:
                raise MethodRefusedError(ua.StatusCodes.BadNoMatch, answer.error)
            return []

        inputs = (Parameter("Source", _STRING, "Name of the alarm's object"),)
        method = Method(object_id=node, role="operator", inputs=inputs, outputs=(), run=run)
        return method, "Acknowledges a standing alarm"

    def _decide(self, point: str, what: str) -> Callable[[GatewayUser, list[Any]], Awaitable[list[Any]]]:
        async def run(user: GatewayUser, values: list[Any]) -> list[Any]:
            text, deadline_ms, priority = values
            args: dict[str, Any] = {"point": point}
            if text:
                args[what] = _object(text)
            elif what == "proposal":
                raise MethodRefusedError(ua.StatusCodes.BadInvalidArgument, "no setpoints given")
            if not (math.isfinite(deadline_ms) and 0 <= deadline_ms <= _LONGEST_MS):
                raise MethodRefusedError(ua.StatusCodes.BadOutOfRange, "the deadline is out of range")
            if (priority or "") not in _CLASSES:
                raise MethodRefusedError(ua.StatusCodes.BadInvalidArgument, f"`{priority}` is not a class")
            if deadline_ms:
                args["deadline_ms"] = deadline_ms
            if priority:
                args["class"] = priority
            answer = await self._ask("decide", args, user, deadline_ms or _DEFAULT_WAIT_MS)
            return _outputs(answer)

        return run

    async def _ask(self, verb: str, args: dict[str, Any], user: GatewayUser, deadline_ms: float) -> Answer:
        if self.link is None:
            raise LinkBrokenError("o3", "no connection to the gateway")
        self.asked += 1
        return await self.link.ask(verb, args, user=user.name or "", deadline_ms=deadline_ms)


def _outputs(answer: Answer) -> list[Any]:
    if not answer.ok:
        return ["rejected", "{}", "", "", "", answer.error]
    view = answer.result if isinstance(answer.result, dict) else {}
    return [
        str(view.get("outcome", "undetermined")),
        json.dumps(view.get("setpoints", {})),
        str(view.get("counterexample", "")),
        str(view.get("certificate_digest", "")),
        str(view.get("id", "")),
        "; ".join(str(said) for said in (view.get("reason"), view.get("overridden")) if said),
    ]


def _object(text: str) -> dict[str, Any]:
    """A JSON object with its numbers as the decimal text they were written in."""
    if len(text) > _TEXT_LIMIT:
        raise MethodRefusedError(ua.StatusCodes.BadInvalidArgument, "the text is too long")
    try:
        found = json.loads(text, parse_float=str, parse_int=str, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise MethodRefusedError(ua.StatusCodes.BadInvalidArgument, f"not JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise MethodRefusedError(ua.StatusCodes.BadInvalidArgument, "give a JSON object")
    return found


def _refuse_constant(word: str) -> str:
    msg = f"{word} is not a number"
    raise ValueError(msg)
