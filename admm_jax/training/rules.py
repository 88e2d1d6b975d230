"""Which settings belong to which rule and loss, their defaults, and the rule and loss they describe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from admm_jax.consensus import A3C, ADMM, EASGD, DiLoCo, FedAvg, FedProx, GradientAveraging, Rule
from admm_jax.errors import InvalidInput, at_least, finite, one_of
from admm_jax.rl.losses import A2CLoss, Loss, PPOLoss
from admm_jax.rl.vtrace import VTraceLoss
from admm_jax.training.heterogeneity import DEFAULT_SPREAD
from admm_jax.training.optimizer import Schedule, SharedOptimizer

if TYPE_CHECKING:
    from admm_jax.training.config import TrainConfig

RULE_SETTINGS = (
    "inner",
    "kappa",
    "rho",
    "restart",
    "over_relaxation",
    "dual_leak",
    "order",
    "elasticity",
    "outer_lr",
    "outer_momentum",
    "share_moment_every",
    "push",
    "shared_optimizer",
    "fetch_every",
    "delays",
    "history",
    "max_staleness",
)
LOSSES = ("ppo", "a2c", "vtrace")
RULE_KINDS: dict[str, tuple[type, tuple[str, ...]]] = {
    "admm": (ADMM, ("inner", "restart", "over_relaxation", "dual_leak", "order")),
    "fedavg": (FedAvg, ()),
    "fedprox": (FedProx, ("inner",)),
    "easgd": (EASGD, ("elasticity",)),
    "diloco": (DiLoCo, ("outer_lr", "outer_momentum")),
    "gradient": (GradientAveraging, ()),
}
"""What the rules that meet once per round are made of, and with which settings."""
RULES = (*RULE_KINDS, "a3c")
LOSS_SETTINGS = ("clip", "clip_value", "clip_rho", "clip_c")
NETWORK_SETTINGS = ("channels", "hidden")
OPTIONAL_SETTINGS = (*RULE_SETTINGS, *LOSS_SETTINGS, *NETWORK_SETTINGS, "spread")

LAYERS: dict[str, dict[str, tuple[int, ...]]] = {
    "article": {"channels": (16, 16), "hidden": (256,)},
    "nature": {"channels": (32, 64, 64), "hidden": (512,)},
    "mlp": {"hidden": (64, 64)},
}

INNER_SOLVERS = {"admm": ("proximal", "gradient", "hybrid"), "fedprox": ("proximal", "gradient")}
INNER_DEFAULTS: dict[str, dict[str, float]] = {
    "proximal": {"kappa": 0.3},
    "gradient": {"rho": 1.0},
    "hybrid": {"kappa": 0.3, "rho": 0.1},
}


def belonging(config: TrainConfig) -> dict[str, Any]:
    """The settings that belong to the chosen rule, inner solver, loss and network, with their defaults."""
    settings: dict[str, Any] = {}
    if config.rule in INNER_SOLVERS:
        inner = config.inner or "proximal"
        settings |= {"inner": inner} | INNER_DEFAULTS.get(inner, {})
    if config.rule == "admm":
        settings |= {"restart": "consensus", "over_relaxation": 1.0, "dual_leak": 0.0, "order": "textbook"}
    if config.rule == "easgd":
        settings |= {"elasticity": 0.9}
    if config.rule == "diloco":
        settings |= {"outer_lr": 0.7, "outer_momentum": 0.9}
    if config.rule == "a3c":
        settings |= _belonging_to_a3c(config)
    elif config.rule != "gradient":
        settings |= {"share_moment_every": 1}
    if config.heterogeneity != "none":
        settings |= {"spread": DEFAULT_SPREAD}
    if config.loss == "ppo":
        settings |= {"clip": 0.2 if config.network == "mlp" else 0.1, "clip_value": False}
    if config.loss == "vtrace":
        settings |= {"clip_rho": 1.0, "clip_c": 1.0}
    return settings | LAYERS[config.network]


def _belonging_to_a3c(config: TrainConfig) -> dict[str, Any]:
    push = config.push or "gradient"
    settings: dict[str, Any] = {"push": push} | ({"shared_optimizer": "adam"} if push == "gradient" else {})
    fetch_every = 5 if config.fetch_every is None else config.fetch_every
    delays = config.delays or ()
    history = max(delays, default=0) if config.history is None else config.history
    limit = 2 * config.workers * (fetch_every + history)
    return settings | {"fetch_every": fetch_every, "delays": delays, "history": history, "max_staleness": limit}


def check_settings(config: TrainConfig) -> None:
    """Raises InvalidInput for a setting out of range or of another rule, inner solver or loss."""
    for field, choices in (("rule", RULES), ("loss", LOSSES)):
        one_of(field, getattr(config, field), choices)
    inner_solvers = INNER_SOLVERS.get(config.rule, ())
    if config.inner is not None and inner_solvers:
        one_of("inner", config.inner, inner_solvers, f" with rule {config.rule}")
    one_of("network", config.network, tuple(LAYERS))
    accepted = belonging(config)
    inner = f" and inner {accepted['inner']}" if "inner" in accepted else ""
    for settings, owner in (
        (RULE_SETTINGS, f"rule {config.rule}{inner}"),
        (LOSS_SETTINGS, f"loss {config.loss}"),
        (NETWORK_SETTINGS, f"network {config.network}"),
    ):
        for field in settings:
            if getattr(config, field) is not None and field not in accepted:
                allowed = f"left out with {owner}, to which it does not belong"
                raise InvalidInput(field, getattr(config, field), allowed)
    if config.kappa is not None:
        finite("kappa", config.kappa, above=0)
    if config.rho is not None:
        finite("rho", config.rho, above=0)
    if config.share_moment_every is not None:
        at_least("share_moment_every", config.share_moment_every, 0)
    if config.rule == "a3c":
        make_a3c(config)
        _check_a3c(config)
    else:
        make_rule(config)
    make_loss(config)


def _check_a3c(config: TrainConfig) -> None:
    if config.delays and len(config.delays) != config.workers:
        raise InvalidInput("delays", config.delays, f"one per worker ({config.workers})")
    if config.shared_optimizer is not None:
        one_of("shared_optimizer", config.shared_optimizer, ("adam", "rmsprop"))
    if config.normalize_advantages == "global":
        raise InvalidInput("normalize_advantages", "global", "another scope with rule a3c, whose workers never meet")
    if config.push != "delta":
        for field in ("local_epochs", "minibatches"):
            if getattr(config, field) != 1:
                raise InvalidInput(field, getattr(config, field), "1 with push gradient: one gradient per rollout")


def spelled_out(config: TrainConfig) -> TrainConfig:
    """The same run with every setting that belongs to it written down."""
    return replace(
        config, **{name: value for name, value in belonging(config).items() if getattr(config, name) is None}
    )


def _settings(config: TrainConfig) -> dict[str, Any]:
    given = {name: getattr(config, name) for name in OPTIONAL_SETTINGS}
    return {name: default if given[name] is None else given[name] for name, default in belonging(config).items()}


def make_rule(config: TrainConfig) -> Rule:
    """The consensus rule of a run."""
    settings = _settings(config)
    kind, names = RULE_KINDS[config.rule]
    return kind(**{name: settings[name] for name in names})


def make_a3c(config: TrainConfig) -> A3C:
    """The script of an asynchronous run."""
    settings = _settings(config)
    return A3C(**{name: settings[name] for name in ("push", "fetch_every", "delays", "history", "max_staleness")})


def make_shared_optimizer(config: TrainConfig) -> SharedOptimizer | None:
    """The optimiser of an asynchronous run's shared parameters; None if workers push deltas."""
    settings = _settings(config)
    return SharedOptimizer(settings["shared_optimizer"], config.adam_eps) if "shared_optimizer" in settings else None


def make_loss(config: TrainConfig) -> Loss:
    """The loss of a run."""
    weights = {"value_weight": config.value_weight, "entropy_weight": config.entropy_weight}
    if config.loss == "a2c":
        return A2CLoss(**weights)
    settings = _settings(config)
    if config.loss == "vtrace":
        return VTraceLoss(
            length=config.rollout + 1,
            gamma=config.gamma,
            clip_rho=settings["clip_rho"],
            clip_c=settings["clip_c"],
            normalize=config.normalize_advantages == "minibatch",
            **weights,
        )
    return PPOLoss(clip=settings["clip"], clip_value=settings["clip_value"], **weights)


def make_schedule(config: TrainConfig) -> Schedule:
    """The learning rate of a run."""
    return Schedule(config.lr, config.anneal_from, config.anneal_steps, config.lr_end)


@dataclass(frozen=True)
class Penalty:
    """What the local problem's penalty is made of; see docs/admm.md.

    Attributes:
        kappa: pull per round, None if there is no pull.
        rho: penalty inside the gradient, None where the pull alone defines it.
        share_moment_every: rounds between averages of the second moment, 0 for never.
    """

    kappa: float | None
    rho: float | None
    share_moment_every: int


def make_penalty(config: TrainConfig) -> Penalty:
    """The penalty of a run."""
    settings = _settings(config)
    return Penalty(settings.get("kappa"), settings.get("rho"), settings.get("share_moment_every", 0))
