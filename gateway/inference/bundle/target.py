"""Where a bundle may run that was made for one device, or fused by one runtime."""

from __future__ import annotations

import platform

from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.manifest import Bundle


def check_target(bundle: Bundle, provider: str, runtime: str) -> None:
    """Raise `BundleError` unless it is for `provider` (as ONNX Runtime names it) of that runtime."""
    made = bundle.manifest.made
    if made is None:
        return
    if made.device and made.device != _DEVICES.get(provider):
        problem = (
            f"it was made for `{made.device}` and this is `{provider}`: "
            "use a machine with that device, or make it for this one with `o3ctl model quantize --device`"
        )
        raise BundleError(bundle.directory, problem)
    if not made.gated:
        problem = (
            f"its gates have not been passed: make it on a machine with `{made.device or 'its device'}`, "
            "where `o3ctl model quantize` measures it"
        )
        raise BundleError(bundle.directory, problem)
    if made.fused is not None:
        fused, here = made.fused, (provider, runtime, platform.machine())
        if (fused.provider, fused.runtime, fused.machine) != here:
            problem = (
                f"its graph was fused for {fused.provider} of ONNX Runtime {fused.runtime} on "
                f"{fused.machine}, this is {here[0]} of {here[1]} on {here[2]}: "
                "make it again here with `o3ctl model optimize`, or use the bundle it was made of"
            )
            raise BundleError(bundle.directory, problem)


_DEVICES = {"CUDAExecutionProvider": "cuda", "CPUExecutionProvider": "cpu"}
