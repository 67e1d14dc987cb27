"""Methods a client may call: arguments checked by the standard's codes, roles first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from asyncua import ua

from gateway.core.errors import LinkError, LinkTimeoutError
from gateway.protocols.opcua.access import GatewayUser
from gateway.protocols.opcua.wire import status

log = structlog.get_logger().bind(component="opcua")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One input or output of a method."""

    name: str
    kind: ua.VariantType
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of one object: who may call it, with what, and what then happens."""

    object_id: ua.NodeId
    role: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    run: Callable[[GatewayUser, list[Any]], Awaitable[list[Any]]]


class MethodRefusedError(Exception):
    """The call ends with this StatusCode."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


async def called(method: Method, request: ua.CallMethodRequest, user: GatewayUser) -> ua.CallMethodResult:
    """The result of one call (OPC 10000-4, 5.12.2); never an exception."""
    result = ua.CallMethodResult()
    if request.ObjectId != method.object_id:
        result.StatusCode = status(ua.StatusCodes.BadMethodInvalid)
        return result
    if not user.may(method.role):
        log.warning(
            "call_refused", user=user.name, method=str(request.MethodId.Identifier), needs=method.role
        )
        result.StatusCode = status(ua.StatusCodes.BadUserAccessDenied)
        return result
    given = list(request.InputArguments or [])
    wrong = _argument_refusal(method, given, result)
    if wrong is not None:
        result.StatusCode = status(wrong)
        return result
    try:
        values = await method.run(user, [argument.Value for argument in given])
    except MethodRefusedError as exc:
        log.info("call_refused", user=user.name, method=str(request.MethodId.Identifier), reason=exc.reason)
        result.StatusCode = status(exc.code)
    except LinkTimeoutError:
        result.StatusCode = status(ua.StatusCodes.BadTimeout)
    except LinkError:
        result.StatusCode = status(ua.StatusCodes.BadNoCommunication)
    else:
        pairs = zip(method.outputs, values, strict=True)
        result.OutputArguments = [ua.Variant(value, output.kind) for output, value in pairs]
    return result


def _argument_refusal(method: Method, given: list[ua.Variant], result: ua.CallMethodResult) -> int | None:
    if len(given) < len(method.inputs):
        return ua.StatusCodes.BadArgumentsMissing
    if len(given) > len(method.inputs):
        return ua.StatusCodes.BadTooManyArguments
    codes = []
    for argument, wanted in zip(given, method.inputs, strict=True):
        fits = argument.VariantType == wanted.kind and not argument.is_array
        codes.append(ua.StatusCodes.Good if fits else ua.StatusCodes.BadTypeMismatch)
    result.InputArgumentResults = [status(code) for code in codes]
    return ua.StatusCodes.BadInvalidArgument if any(codes) else None
