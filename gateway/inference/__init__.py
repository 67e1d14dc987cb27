"""The model's side. ONNX Runtime is imported below this package only."""

import os

# Its builds report their use to their maker, from the import on, by an id they keep in the home folder.
# Nothing of the sort leaves a plant from us. The workers inherit it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
