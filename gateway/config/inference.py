"""Where models run: what gateway.toml says of it, and what it cannot mean."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StrictBool

from gateway.config.keys import Section


def _provider(value: str) -> str:
    number = value.removeprefix("cuda:")
    if value in {"auto", "cpu"} or (value != number and number.isascii() and number.isdigit()):
        return value
    raise ValueError(f'`{value}` is not a provider; write "auto", "cpu", or "cuda:0" for the first GPU')


class InferenceSection(Section):
    """Where the models run. `auto` is the first CUDA device where there is one, else the processor.

    With `cuda:N` a gateway without that device does not start. A model that runs on the processor after all
    serves, under an alarm; with `require_cuda` it is refused.
    """

    provider: Annotated[str, AfterValidator(_provider)] = "auto"
    require_cuda: StrictBool = False


def inference_problems(section: InferenceSection) -> list[tuple[str, str]]:
    """What is wrong between its keys: the key to look at, and a sentence."""
    if section.require_cuda and section.provider == "cpu":
        return [("require_cuda", 'CUDA is required and `provider` is "cpu"; use "auto" or "cuda:0"')]
    return []
