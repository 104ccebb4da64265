"""A process that stalls ends the others after a timeout that can be set."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from surnn.config import TrainConfig
from surnn.errors import ConfigError

CODE = """
import os, signal, sys
from surnn.errors import SurnnError
from surnn.train.distributed import world_context
try:
    with world_context(timeout=3.0) as world:
        world.largest(1.0)
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        world.largest(2.0)
except SurnnError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_stopped_process_ends_the_others():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CODE],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        out, err = started[0].communicate(timeout=600)
    finally:
        for process in started:
            process.kill()
        started[1].communicate()
    assert started[0].returncode == 7, err
    assert "did not answer for 3 seconds (--train.timeout)" in out


def test_the_timeout_is_an_option():
    assert TrainConfig(timeout=5.0).timeout == 5.0
    with pytest.raises(ConfigError, match=r"train\.timeout must be more than 0"):
        TrainConfig(timeout=0)
