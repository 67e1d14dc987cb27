"""`[inference]` of gateway.toml: where models run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.config.inference import InferenceSection
from gateway.config.load import load
from gateway.core.errors import ConfigError

DEMO = Path(__file__).resolve().parents[2] / "packaging" / "demo"


def read(folder: Path, section: str) -> InferenceSection:
    for name in ("gateway.toml", "tk1.csv", "binding.csv"):
        shutil.copy(DEMO / name, folder / name)
    file = folder / "gateway.toml"
    file.write_text(f"{file.read_text()}\n[inference]\n{section}\n")
    return load(file).inference


def test_without_a_word_the_first_device_serves_or_the_processor() -> None:
    section = InferenceSection()

    assert (section.provider, section.require_cuda, section.max_wait) == ("auto", False, 0.0)


@pytest.mark.parametrize("provider", ["auto", "cpu", "cuda:0", "cuda:11"])
def test_a_provider_is_taken_as_written(tmp_path: Path, provider: str) -> None:
    assert read(tmp_path, f'provider = "{provider}"').provider == provider


@pytest.mark.parametrize("provider", ["cuda", "gpu", "cuda:", "cuda:-1", "CPU", "0", ""])
def test_what_is_no_provider_is_refused_with_what_to_write(tmp_path: Path, provider: str) -> None:
    with pytest.raises(ConfigError, match=r'is not a provider; write "auto", "cpu", or "cuda:0"'):
        read(tmp_path, f'provider = "{provider}"')


def test_cuda_cannot_be_required_on_the_processor(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'CUDA is required and `provider` is "cpu"'):
        read(tmp_path, 'provider = "cpu"\nrequire_cuda = true')

    assert read(tmp_path, 'provider = "cuda:0"\nrequire_cuda = true').require_cuda


def test_on_the_processor_nobody_may_wait_for_company(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="every millisecond of waiting is one more of each answer"):
        read(tmp_path, 'provider = "cpu"\nmax_wait = "1 ms"')

    assert read(tmp_path, 'provider = "cpu"\nmax_wait = "0 ms"').max_wait == 0.0
    assert read(tmp_path, 'provider = "cuda:0"\nmax_wait = "2 ms"').max_wait == 0.002


def test_a_wait_has_a_limit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="waits at most 20 ms for company"):
        read(tmp_path, 'provider = "cuda:0"\nmax_wait = "50 ms"')
