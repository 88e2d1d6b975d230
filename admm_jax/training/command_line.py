"""A training run from command-line flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import tyro

from admm_jax import cli
from admm_jax.errors import InvalidInput, one_of
from admm_jax.parallel import split_host
from admm_jax.training.config import TrainConfig
from admm_jax.training.defaults import PRESETS, default_config, default_options
from admm_jax.training.options import RunOptions
from admm_jax.training.rules import LOSSES, RULES
from admm_jax.training.run_folder import read_config


@dataclass(frozen=True)
class _AsGiven(TrainConfig):
    """Settings as given, checked later: those of a run to resume are first compared with its own."""

    def __post_init__(self) -> None:
        pass


def parse_run(arguments: Sequence[str], description: str) -> tuple[TrainConfig, RunOptions]:
    """Flags as a checked run. Defaults are those of the environment, loss and preset, or of the run to resume.

    Raises:
        InvalidInput: a flag's value does not fit.
        SystemExit: unknown flag (2), help (0).
    """
    first = _first_look(arguments)
    stored = None if first.resume is None else read_config(Path(first.resume))
    devices = first.devices if stored is None or first.devices is not None else stored["run"].get("devices")
    if devices is not None and str(devices).isdecimal():
        split_host(int(devices))  # before anything starts JAX, as importing gymnax does
    if stored is None:
        given_env = first.env or TrainConfig.env
        start = default_config(given_env, first.loss, first.preset, first.rule or TrainConfig.rule)
        options = default_options(given_env, first.preset)
    else:
        if first.preset != "default":
            raise InvalidInput("preset", first.preset, "left out with resume, which keeps the settings of the run")
        start = TrainConfig.from_json(stored["train"])
        options = replace(RunOptions(**_known(stored["run"])), resume=None, run_dir=None)

    as_given = _AsGiven(**asdict(start))

    @dataclass(frozen=True)
    class Flags:
        train: Annotated[_AsGiven, tyro.conf.arg(name="")] = as_given
        run: Annotated[RunOptions, tyro.conf.arg(name="")] = options
        preset: str = "default"
        """Settings to start from: default, or smoke (everything, in about a minute)."""

    Flags.__doc__ = description
    flags = cli.parse(Flags, arguments)
    if first.resume is not None:
        differences = start.differences(flags.train)
        if differences:
            raise InvalidInput("resume", first.resume, f"a run with the same settings; it has {'; '.join(differences)}")
    return TrainConfig(**asdict(flags.train)), flags.run


def _first_look(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags that other flags' defaults depend on."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("env", "rule", "loss", "resume", "devices"):
        parser.add_argument(f"--{name}", nargs="?")
    parser.add_argument("--preset", nargs="?", default="default")
    first, _ = parser.parse_known_args(list(arguments))
    for name, choices in (("rule", RULES), ("loss", LOSSES)):
        if getattr(first, name) is not None:
            one_of(name, getattr(first, name), choices)
    one_of("preset", first.preset, PRESETS)
    return first


def _known(stored: dict) -> dict:
    names = {field.name for field in fields(RunOptions)}
    return {name: value for name, value in stored.items() if name in names}
