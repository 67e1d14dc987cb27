"""Where models run: what gateway.toml says of it, and what it cannot mean."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StrictBool

from gateway.config.keys import Duration, Section

_LONGEST_WAIT_S = 0.02
_NO_GAIN = (
    "on the processor every millisecond of waiting is one more of each answer, and requests that wait anyway "
    'share a forward; write "0 ms", or another `provider`'
)


def _provider(value: str) -> str:
    number = value.removeprefix("cuda:")
    if value in {"auto", "cpu"} or (value != number and number.isascii() and number.isdigit()):
        return value
    raise ValueError(f'`{value}` is not a provider; write "auto", "cpu", or "cuda:0" for the first GPU')


class InferenceSection(Section):
    """Where the models run. `auto` is the first CUDA device where there is one, else the processor.

    With `cuda:N` a gateway without that device does not start. A model that runs on the processor after all
    serves, under an alarm; with `require_cuda` it is refused. On CUDA a request may wait up to `max_wait` for
    others to share its first forward.
    """

    provider: Annotated[str, AfterValidator(_provider)] = "auto"
    require_cuda: StrictBool = False
    max_wait: Duration = 0.0


def inference_problems(section: InferenceSection) -> list[tuple[str, str]]:
    """What is wrong between its keys: the key to look at, and a sentence."""
    found = []
    if section.require_cuda and section.provider == "cpu":
        found.append(("require_cuda", 'CUDA is required and `provider` is "cpu"; use "auto" or "cuda:0"'))
    if section.max_wait > 0 and section.provider == "cpu":
        found.append(("max_wait", _NO_GAIN))
    if section.max_wait > _LONGEST_WAIT_S:
        longest_ms = 1000 * _LONGEST_WAIT_S
        found.append(("max_wait", f"a request waits at most {longest_ms:g} ms for company, not longer"))
    return found
