"""One of two processes that run the rounds of test_equivalence together; prints what it holds as JSON.

python -m tests.parallel.two_processes PROCESS PORT
"""

import json
import sys

import jax
import numpy as np


def main(process: int, port: int) -> None:
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
    from tests.parallel.test_equivalence import compiled

    z, dual = compiled(devices=4, mapping="vmap")
    shares = [(shard.index[0].start, np.asarray(shard.data).tolist()) for shard in dual.addressable_shards]
    print(json.dumps({"z": z.tolist(), "dual": sorted(shares), "processes": jax.process_count()}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
