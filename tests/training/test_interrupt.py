"""The first Ctrl-C is a request; the second one ends the process at once."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import time
from admm_jax.training.interrupt import Interrupt
with Interrupt() as interrupt:
    print("ready", flush=True)
    while interrupt.signal is None or {stubborn}:
        time.sleep(0.05)
raise SystemExit(interrupt.exit_code)
"""


def started(stubborn: bool) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(stubborn=stubborn)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_a_request(number, status):
    process = started(stubborn=False)
    process.send_signal(number)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Ctrl-C again" in messages


def test_a_second_ctrl_c_does_not_wait():
    process = started(stubborn=True)
    process.send_signal(signal.SIGINT)
    assert "finishing" in process.stderr.readline() + process.stderr.readline()
    time.sleep(0.3)
    assert process.poll() is None  # it was a request
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
