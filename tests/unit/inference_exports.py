"""Models that other tools exported, as bundles for the demo's tags; see their README."""

from fractions import Fraction
from pathlib import Path

from gateway.inference.decoding.decode import OutputRange

EXPORTS = Path(__file__).resolve().parents[1] / "data" / "exports"
OPTIMUM_LLAMA, OPTIMUM_GPT2 = EXPORTS / "optimum_llama", EXPORTS / "optimum_gpt2"
GENAI_LLAMA = EXPORTS / "genai_llama"
DECODERS = (OPTIMUM_LLAMA, OPTIMUM_GPT2, GENAI_LLAMA)
REGRESSOR, CLASSIFIER = EXPORTS / "sklearn_regressor", EXPORTS / "sklearn_classifier"
FORECASTER = EXPORTS / "sklearn_forecaster"
STATELESS = (REGRESSOR, CLASSIFIER, FORECASTER)

PUMP = OutputRange(Fraction(1, 10), Fraction(0), 0, 1000)
HEATER = OutputRange(Fraction(1), Fraction(0), 0, 1)
