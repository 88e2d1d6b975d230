"""Two processes with two devices each, joined by gloo, compute what the NumPy loop does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.parallel.test_equivalence import numpy_loop

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_fifty_rounds_in_two_processes():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.parallel.two_processes", str(index), str(port)],
            cwd=ROOT,
            env=environment | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], outputs
    held = [json.loads(output.splitlines()[-1]) for output, _ in outputs]
    expected_z, expected_dual = numpy_loop()
    shares = sorted(share for each in held for share in each["dual"])
    assert [start for start, _ in shares] == [0, 2, 4, 6]
    np.testing.assert_allclose(np.concatenate([rows for _, rows in shares]), expected_dual, atol=1e-5, rtol=1e-5)
    for each in held:
        assert each["processes"] == 2
        np.testing.assert_allclose(each["z"], expected_z, atol=1e-5, rtol=1e-5)
