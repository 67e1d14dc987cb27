"""The plant's own evidence: a full disk costs lines of it, never a scan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_CODE = """
import sys
from pathlib import Path
from gateway.plantsim.scan_log import ScanLog
log = ScanLog(Path(sys.argv[1]) / "scan.csv")
(Path(sys.argv[1]) / "scan.csv").mkdir()  # nothing can be appended from now on
log.flush()
sys.stderr.write(f"went on, {log.lines_lost} lost")
"""


@pytest.mark.parametrize("stdout", ["/dev/full", "/dev/null"])
def test_a_log_that_cannot_be_written_ends_nothing_even_where_nobody_can_be_told(
    tmp_path: Path, stdout: str
) -> None:
    with open(stdout, "w") as out:  # noqa: PTH123  # a device
        done = subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-c", _CODE, str(tmp_path)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=360,
            check=False,
        )

    assert done.stderr.startswith("went on, 1 lost")
