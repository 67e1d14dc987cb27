"""One profile for every property test: shared machines pause, so no example has a deadline."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("here"), derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "here")
