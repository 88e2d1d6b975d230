"""Train workers on Atari Pong (or another environment) that agree by consensus ADMM, once per compiled round.

python experiments/pong_admm.py
python experiments/pong_admm.py --preset smoke
python experiments/pong_admm.py --env gymnax:CartPole-v1
python experiments/pong_admm.py --resume runs/NAME --total-steps 4000000
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from admm_jax import cli
from admm_jax.training.command_line import parse_run
from admm_jax.training.compilation import keep_compiled_programs
from admm_jax.training.trainer import AllWorkersFailed, train


def main(arguments: Sequence[str]) -> None:
    config, options = parse_run(arguments, __doc__)
    if options.compilation_cache:
        keep_compiled_programs(config)
    try:
        train(config, options)
    except AllWorkersFailed as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    cli.run(main)
