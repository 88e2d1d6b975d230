"""Everything that defines a training run, checked before anything compiles."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Literal

from admm_jax.envs import registry as environments
from admm_jax.errors import InvalidInput, at_least, finite
from admm_jax.parallel import MappingChoice, check_worker_count
from admm_jax.training import heterogeneity, rules

RuleName = Literal["admm", "fedavg", "fedprox", "easgd", "diloco", "gradient", "a3c"]
LossName = Literal["ppo", "a2c", "vtrace"]


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Axes: W workers, E environments per worker, T steps per rollout.

    A round collects rollouts-per-round x rollout x envs-per-worker x workers steps; each rollout is followed by its
    local epochs, and one exchange ends the round. Settings that belong to a rule or a loss may be left out (None),
    and must be left out with the others.

    Raises:
        InvalidInput: a setting outside its range, or one that belongs to another rule, inner solver or loss.
    """

    env: str = "Pong-v5"
    """Environment: an Atari game of EnvPool (Pong-v5), gymnax:NAME, jax-pong or jax-pong-pixels."""
    rule: RuleName = "admm"
    """How workers agree: consensus ADMM, averaging of parameters (fedavg), the same with a proximal term (fedprox),
    with elastic forces (easgd) or with outer Nesterov momentum (diloco),
    averaging of every gradient (gradient: synchronous A2C/PPO), or shared parameters that everyone updates in turn
    (a3c)."""
    loss: LossName = "ppo"
    """Policy-gradient loss of the local problem: a clipped ratio (ppo), the plain advantage actor-critic (a2c), or
    one whose advantages are corrected for steps that others' parameters took (vtrace)."""

    workers: int = 4
    """Workers W; a multiple of the devices."""
    envs_per_worker: int = 4
    """Environments E of each worker."""
    rollout: int = 128
    """Steps T of each environment per rollout."""
    rollouts_per_round: int = 1
    """Rollouts (each followed by its local epochs) between two exchanges."""
    local_epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 8
    """Minibatches per pass; divides rollout x envs-per-worker (vtrace, which learns from whole rollouts:
    envs-per-worker)."""

    lr: float = 5e-4
    """Learning rate of Adam."""
    anneal_steps: int = 0
    """Steps (of all workers, as collected) from which on the learning rate is lr-end; 0 keeps it at lr."""
    anneal_from: int = 0
    """Steps at which it starts to fall, linearly; below anneal-steps."""
    lr_end: float = 0.0
    """Learning rate from anneal-steps on, 0 to lr."""
    adam_eps: float = 1e-5
    """Epsilon of Adam."""
    max_grad_norm: float = 0.5
    """Norm at which the gradient of the loss alone is clipped."""
    gamma: float = 0.99
    """Discount per step."""
    gae_lambda: float = 0.95
    """Decay of generalised advantages, 0 to 1."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    entropy_weight: float = 0.01
    """Weight of the entropy bonus."""
    clip: float | None = None
    """ppo: how far the probability ratio may leave 1. [default: 0.1 on images, else 0.2]"""
    clip_value: bool | None = None
    """ppo: limit the value's step by clip as well. [default: False]"""
    clip_rho: float | None = None
    """vtrace: bound of the weight of a step's own correction. [default: 1]"""
    clip_c: float | None = None
    """vtrace: bound of the weight with which corrections are carried back. [default: 1]"""
    normalize_advantages: Literal["minibatch", "worker", "global", "none"] = "minibatch"
    """Over what advantages get mean 0 and deviation 1: each minibatch, each worker's rollout, or the rollouts of all
    workers (which exchanges three scalars)."""
    normalize_observations: bool = True
    """Give each element of the observation mean 0 and deviation 1, by statistics that workers merge at the exchange."""
    clip_rewards: bool = True
    """Train on the sign of rewards; scores are raw either way."""

    inner: Literal["proximal", "gradient", "hybrid"] | None = None
    """admm, fedprox: where the penalty acts: after each Adam step (proximal), inside the gradient, or the dual inside
    and the pull after (hybrid, admm). [default: proximal]"""
    kappa: float | None = None
    """inner proximal, hybrid: pull per round; the distance to the consensus shrinks by exp(-kappa). [default: 0.3]"""
    rho: float | None = None
    """inner gradient, hybrid: penalty, loss per squared parameter. [default: 1 for gradient, 0.1 for hybrid]"""
    restart: Literal["consensus", "worker"] | None = None
    """admm: start local solves from z or from the worker's own last solution. [default: consensus]"""
    over_relaxation: float | None = None
    """admm: alpha, above 0 and below 2. [default: 1]"""
    dual_leak: float | None = None
    """admm: share of the dual forgotten at each exchange, 0 to 1. [default: 0]"""
    order: Literal["textbook", "dual_first"] | None = None
    """admm: the dual moves after the consensus (textbook) or before it (dual_first: FedPD, FedDyn).
    [default: textbook]"""
    elasticity: float | None = None
    """easgd: beta, how far the consensus goes towards the mean, above 0 and at most 1. [default: 0.9]"""
    outer_lr: float | None = None
    """diloco: step of the consensus along the mean update. [default: 0.7]"""
    outer_momentum: float | None = None
    """diloco: Nesterov momentum of that step, at least 0 and below 1. [default: 0.9]"""
    share_moment_every: int | None = None
    """all but gradient and a3c: rounds between averages of Adam's second moment; 0 never. [default: 1]"""

    push: Literal["gradient", "delta"] | None = None
    """a3c: send the gradient of a rollout to a shared optimiser, or learn locally and send how the parameters changed.
    [default: gradient]"""
    shared_optimizer: Literal["adam", "rmsprop"] | None = None
    """a3c, push gradient: optimiser of the shared parameters. [default: adam]"""
    fetch_every: int | None = None
    """a3c: pushes of a worker between two fetches of the shared parameters. [default: 5]"""
    delays: tuple[int, ...] | None = None
    """a3c: pushes by which what a worker fetches is late, one per worker. [default: 0 for everyone]"""
    history: int | None = None
    """a3c: how far delays may reach back, in pushes of a worker. [default: the longest delay]"""
    max_staleness: int | None = None
    """a3c: a push is rejected if the shared parameters have changed more often than this since its worker fetched
    them. [default: 2 x workers x (fetch-every + history)]"""

    network: Literal["article", "nature", "mlp"] = "article"
    """Actor-critic network."""
    channels: tuple[int, ...] | None = None
    """article, nature: channels of the convolutions. [default: 16 16 for article, 32 64 64 for nature]"""
    hidden: tuple[int, ...] | None = None
    """Widths of the dense layers. [default: 256 for article, 512 for nature, 64 64 for mlp]"""
    frame_size: int = 42
    """Atari: height and width of a frame, pixels."""
    frame_stack: int = 4
    """Atari: frames per observation."""

    heterogeneity: Literal["none", "physics", "reward_scale", "conflict"] = "none"
    """How workers' environments differ: not at all, in physics, in the scale of what they learn from, or in what they
    are rewarded for."""
    spread: float | None = None
    """heterogeneity: how far apart workers are, 0 or more. [default: 1]"""
    worker_params: str | None = None
    """Parameters of the environment with one number per worker, as JSON or the name of a file that holds it:
    {"length": [0.4, 0.5, ...]}. Not with heterogeneity."""

    seed: int = 0
    """Seed of everything random; not negative."""
    worker_mapping: MappingChoice = "auto"
    """Workers of one device all at once (vmap), one after the other (map), or what is fastest here (auto)."""

    def __post_init__(self) -> None:
        rules.check_settings(self)
        for field in ("workers", "envs_per_worker", "rollout", "rollouts_per_round", "local_epochs", "minibatches"):
            at_least(field, getattr(self, field), 1)
        check_worker_count(self.workers, 1)
        batch, parts = self.rollout * self.envs_per_worker, "rollout x envs_per_worker"
        if self.loss == "vtrace":
            batch, parts = self.envs_per_worker, "envs_per_worker"
        if batch % self.minibatches:
            raise InvalidInput("minibatches", self.minibatches, f"a divisor of {parts} ({batch})")
        if self.loss == "vtrace" and self.normalize_advantages in ("worker", "global"):
            allowed = "minibatch or none with loss vtrace, whose advantages are new at every step"
            raise InvalidInput("normalize_advantages", self.normalize_advantages, allowed)
        finite("lr", self.lr, low=0)
        at_least("anneal_steps", self.anneal_steps, 0)
        at_least("anneal_from", self.anneal_from, 0)
        if self.anneal_from and self.anneal_from >= self.anneal_steps:
            raise InvalidInput("anneal_from", self.anneal_from, f"below anneal_steps ({self.anneal_steps})")
        finite("lr_end", self.lr_end, low=0, high=self.lr)
        if self.lr_end and not self.anneal_steps:
            raise InvalidInput("lr_end", self.lr_end, "left out without anneal_steps, after which it would apply")
        at_least("seed", self.seed, 0)
        if self.seed >= 2**31:
            raise InvalidInput("seed", self.seed, "below 2147483648")
        at_least("frame_size", self.frame_size, 16)
        at_least("frame_stack", self.frame_stack, 1)
        finite("adam_eps", self.adam_eps, above=0)
        finite("max_grad_norm", self.max_grad_norm, above=0)
        finite("gamma", self.gamma, low=0, high=1)
        finite("gae_lambda", self.gae_lambda, low=0, high=1)
        environments.check_name(self.env)
        if self.worker_params is not None:
            # Kept as JSON, so that the run's record does not depend on a file.
            object.__setattr__(self, "worker_params", heterogeneity.as_json(self.worker_params))
        heterogeneity.of_workers(self)

    @property
    def family(self) -> str:
        """Where the environment comes from: atari, gymnax, jax-pong or jax-pong-pixels."""
        return environments.family(self.env)

    @property
    def steps_per_rollout(self) -> int:
        """Local optimiser steps after one rollout."""
        return self.local_epochs * self.minibatches

    @property
    def steps_per_round(self) -> int:
        """K, local optimiser steps between two exchanges."""
        return self.rollouts_per_round * self.steps_per_rollout

    @property
    def learns_locally(self) -> bool:
        """Whether workers have optimisers of their own."""
        return self.rule != "a3c" or self.push == "delta"

    @property
    def updates_per_round(self) -> int:
        """How often a worker's result enters the consensus in a round: once, or at every push."""
        return self.rollouts_per_round if self.rule == "a3c" else 1

    @property
    def env_steps_per_round(self) -> int:
        """Environment calls of all workers in one round (resets included)."""
        return self.rollouts_per_round * self.rollout * self.envs_per_worker * self.workers

    def to_json(self) -> dict:
        """JSON-able, with every setting spelled out."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict) -> TrainConfig:
        """The inverse of `to_json`."""
        tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **tuples})

    def differences(self, other: TrainConfig) -> list[str]:
        """Settings in which two runs differ, as phrases."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return [f"{name}: {mine!r}, asked for {theirs!r}" for name, mine, theirs in pairs if mine != theirs]
