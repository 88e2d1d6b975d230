"""Settings for all tests: eight CPU devices, so that sharding is exercised on any machine, and one compilation of each
program for the whole session."""

import atexit
import shutil
import tempfile

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

_programs = tempfile.mkdtemp(prefix="admm-jax-tests-")
atexit.register(shutil.rmtree, _programs, ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", _programs)
