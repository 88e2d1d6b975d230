"""A run from start to finish: rounds, evaluations, checkpoints, records."""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax.consensus import Workers, forget_duals
from admm_jax.errors import InvalidInput
from admm_jax.parallel import (
    SHARDED,
    MeshReduction,
    Stream,
    WorkerMesh,
    check_worker_count,
    request_devices,
    stream_key,
)
from admm_jax.training import rules
from admm_jax.training.checkpoints import Checkpoints, saved_part
from admm_jax.training.config import TrainConfig
from admm_jax.training.evaluation import Evaluator, Scores, worker_environments
from admm_jax.training.interrupt import Interrupt
from admm_jax.training.ledger import make_ledger
from admm_jax.training.model import make_model
from admm_jax.training.options import RunOptions
from admm_jax.training.page import draw_page
from admm_jax.training.policy import Policy, Weights
from admm_jax.training.program import initial_state, make_round
from admm_jax.training.progress import Progress
from admm_jax.training.provenance import git_commit, hardware, versions
from admm_jax.training.recording import can_record, record_game
from admm_jax.training.run_folder import SUMMARY, RunFolder, check_vacant, read_config
from admm_jax.training.state import STATE_SPECS, TrainState, sha256

FORGET_AFTER = 3
"""Rounds running with numbers that are not finite after which a worker's dual is forgotten; if every worker failed
for as long, the run stops."""
RECENT_GAMES = 40
PAGE, GIF = "page.png", "z.gif"


class AllWorkersFailed(RuntimeError):
    """Every worker's update was not finite for several rounds running; the last finite z is saved."""


class Interrupted(SystemExit):
    """The run was asked to stop, and has been saved. ``code`` is 130 (Ctrl-C) or 143 (SIGTERM)."""


@dataclass
class Totals:
    """What a run has used and reached so far; kept in checkpoints, so that resumed runs report whole runs.

    Attributes:
        rounds, env_steps: so far.
        bytes_sent_per_worker: uplink to a parameter server.
        round_seconds: spent in rounds. wall_seconds: in all, sessions added up. compile_seconds: of the round.
        steps_to_target, seconds_to_target: when the target return was confirmed, or None.
        failed_rounds: rounds running in which every worker failed. failed_updates: updates not finite in all.
        primal_residual, dual_residual: of the last round.
        recent: sums and numbers of the games finished in the last rounds.
        last_eval: mean score of the last evaluation.
    """

    rounds: int = 0
    env_steps: int = 0
    bytes_sent_per_worker: int = 0
    round_seconds: float = 0.0
    wall_seconds: float = 0.0
    compile_seconds: float = 0.0
    steps_to_target: int | None = None
    seconds_to_target: float | None = None
    failed_rounds: int = 0
    failed_updates: int = 0
    primal_residual: float = float("nan")
    dual_residual: float = float("nan")
    recent: list[list[float]] = field(default_factory=list)
    last_eval: float = float("nan")

    def games(self, total_return: float, count: int) -> None:
        """Note the games that a round finished, and forget those that are no longer recent."""
        if count:
            self.recent.append([total_return, count])
        while len(self.recent) > 1 and sum(n for _, n in self.recent[1:]) >= RECENT_GAMES:
            self.recent.pop(0)

    @property
    def recent_return(self) -> float:
        """Mean raw return of about the last 40 games of training."""
        count = sum(n for _, n in self.recent)
        return sum(total for total, _ in self.recent) / count if count else float("nan")


def train(config: TrainConfig, options: RunOptions) -> dict:
    """Train to the end (or to the target), and return the summary that is also written to the run's folder.

    Args:
        config: what to train. When ``options.resume`` names a run, the same as its own.
        options: how long, and where.

    Raises:
        InvalidInput: something does not fit, found before anything compiles and before a folder is made.
        Interrupted: SIGINT or SIGTERM; the state is saved.
        AllWorkersFailed: nothing finite to go on with; the state is saved.
    """
    return Trainer(config, options).run()


class Trainer:
    """One session of a run; building it checks everything and starts nothing that lasts."""

    def __init__(self, config: TrainConfig, options: RunOptions) -> None:
        self.config = config = rules.spelled_out(config)
        self.options = options
        if options.resume is not None:
            self._check_resumable()
        elif options.run_dir is not None:
            check_vacant(options.run_dir)
        devices = _choose_devices(config.workers, options.devices)
        self.mesh = WorkerMesh(config.workers, devices)
        self.environment = worker_environments(config, config.envs_per_worker, Stream.TRAINING, pools=devices)
        self.model, self.params = make_model(
            config, self.environment.spec, stream_key(config.seed, Stream.INITIALISATION)
        )
        self.evaluate = Evaluator(config, self.model, options.greedy)
        self.ledger = make_ledger(config, self.model.size, self.environment.spec)
        self.progress = Progress(options.total_steps, options.progress)
        self.totals = Totals()

    def run(self) -> dict:
        """See `train`."""
        self._wall_start = time.monotonic()
        with self._open_folder() as self.folder, Interrupt() as self.interrupt:
            self.checkpoints = Checkpoints(
                self.folder.path / "checkpoints",
                self.options.keep_checkpoints,
                self.environment.spec.resumable,
            )
            state = self._first_state()
            self.progress.message(self._introduction())
            if 0 < self.config.anneal_steps < self.options.total_steps and self.config.lr_end == 0:
                self._warn(f"the learning rate is 0 from {self.config.anneal_steps:,} steps on, and nothing is learned")
            compiled = self._compile(state)
            state = self._rounds(state, compiled)
            return self._finish(state)

    def _check_resumable(self) -> None:
        folder = self.options.resume
        stored = TrainConfig.from_json(read_config(folder)["train"])
        differences = stored.differences(self.config)
        if differences:
            raise InvalidInput("resume", str(folder), f"a run with the same settings; it has {'; '.join(differences)}")
        if self.options.run_dir is not None and self.options.run_dir.resolve() != folder.resolve():
            raise InvalidInput("run_dir", str(self.options.run_dir), f"left out, or {folder}, which is resumed")
        if not Checkpoints(folder / "checkpoints", 2, True).rounds():
            raise InvalidInput("resume", str(folder), "the folder of a run that has a checkpoint")

    def _open_folder(self) -> RunFolder:
        if self.options.resume is not None:
            return RunFolder.reopen(self.options.resume)
        path = self.options.run_dir
        if path is None:
            name = f"{self.config.env.replace(':', '-')}-{self.config.rule}-s{self.config.seed}"
            path = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        return RunFolder.create(path, self._record())

    def _record(self) -> dict:
        return {
            "train": self.config.to_json(),
            "run": asdict(self.options),
            "environment": asdict(self.environment.spec),
            "parameters": self.model.size,
            "devices": self.mesh.num_devices,
            "versions": versions(),
            "hardware": hardware(),
            "git_commit": git_commit(),
        }

    def _introduction(self) -> str:
        config, place = self.config, hardware()
        return (
            f"{config.env}: {config.workers} workers x {config.envs_per_worker} environments on "
            f"{self.mesh.num_devices} {place['platform']} device(s), rule {config.rule}, loss {config.loss}, "
            f"{self.model.size:,} parameters, {config.steps_per_round} local steps and one exchange per "
            f"{config.env_steps_per_round:,} steps\nfolder {self.folder.path}"
        )

    def _first_state(self) -> TrainState:
        state = initial_state(self.config, self.environment, self.model, self.params, self.mesh)
        if self.options.resume is None:
            return state
        restored = self.checkpoints.restore(state, self._warn)
        self.totals = Totals(**restored.manifest["totals"])
        self._wall_start -= self.totals.wall_seconds
        self.folder.go_back_to(self.totals.rounds)
        self.folder.event(
            "resumed",
            round=self.totals.rounds,
            env_steps=self.totals.env_steps,
            environments="restored" if self.environment.spec.resumable else "restarted",
            devices=self.mesh.num_devices,
        )
        if not self.environment.spec.resumable:
            self.progress.message("environments cannot be saved: games start anew, training goes on")
        return self.mesh.place(restored.state, STATE_SPECS)

    def _compile(self, state: TrainState) -> Any:
        started = time.monotonic()
        compiled = make_round(self.config, self.environment, self.model, self.mesh).lower(state).compile()
        seconds = time.monotonic() - started
        self.totals.compile_seconds += seconds
        self.progress.message(f"compiled the round in {seconds:.1f} s")
        return compiled

    def _rounds(self, state: TrainState, compiled: Any) -> TrainState:
        options, totals = self.options, self.totals
        speed: deque[tuple[float, int]] = deque(maxlen=20)
        last_save = time.monotonic()
        while totals.env_steps < options.total_steps and totals.steps_to_target is None:
            started = time.monotonic()
            state, metrics = compiled(state)
            metrics = {name: value.tolist() for name, value in jax.device_get(metrics).items()}
            seconds = time.monotonic() - started
            speed.append((seconds, metrics["env_steps"] - totals.env_steps))
            totals.round_seconds += seconds
            totals.bytes_sent_per_worker += self.ledger.uplink_bytes(totals.rounds)
            totals.rounds += 1
            before, totals.env_steps = totals.env_steps, metrics["env_steps"]
            totals.wall_seconds = self._wall_seconds()
            totals.primal_residual, totals.dual_residual = metrics["primal_residual"], metrics["dual_residual"]
            if metrics["episodes"]:
                totals.games(metrics["return_mean"] * metrics["episodes"], metrics["episodes"])
            state = self._handle_failures(state, metrics)

            rate = sum(steps for _, steps in speed) / sum(seconds for seconds, _ in speed)
            row = self._row(metrics, rate)
            if totals.rounds % options.log_every == 0:
                self.folder.metrics(row)
            self.progress.update(row | {"last_eval": totals.last_eval}, rate)
            if options.eval_every and before // options.eval_every != totals.env_steps // options.eval_every:
                self._evaluate(state, options.eval_episodes)
            if self.interrupt.signal is not None:
                self._save(state)
                self.folder.event("interrupted", signal=self.interrupt.signal, round=totals.rounds)
                self.progress.message(f"saved; go on with --resume {self.folder.path}")
                raise Interrupted(self.interrupt.exit_code)
            if time.monotonic() - last_save >= 60 * options.checkpoint_minutes:
                self._save(state)
                last_save = time.monotonic()
        return state

    def _row(self, metrics: dict[str, float], rate: float) -> dict[str, float]:
        totals = self.totals
        return {
            "round": totals.rounds,
            **metrics,
            "recent_return": totals.recent_return,
            "bytes_sent_per_worker": totals.bytes_sent_per_worker,
            "env_steps_per_second": rate,
            "wall_seconds": totals.wall_seconds,
        }

    def _handle_failures(self, state: TrainState, metrics: dict[str, float]) -> TrainState:
        failed, totals = metrics["failed_workers"], self.totals
        if not failed:
            totals.failed_rounds = 0
            return state
        totals.failed_updates += failed
        self._warn(f"round {totals.rounds}: the updates of {failed} worker(s) were not finite and were left out")
        everyone = self.config.workers * self.config.updates_per_round
        totals.failed_rounds = totals.failed_rounds + 1 if failed == everyone else 0
        if totals.failed_rounds >= FORGET_AFTER:
            self._save(state)
            raise AllWorkersFailed(
                f"every worker's update was not finite for {FORGET_AFTER} rounds running; the last finite z is saved "
                f"in {self.checkpoints.path}. A smaller lr or max_grad_norm may help."
            )
        failures = np.asarray(state.consensus.workers.failures)
        if self.config.rule != "admm" or (failures < FORGET_AFTER).all():
            return state
        names = np.flatnonzero(failures >= FORGET_AFTER).tolist()
        self._warn(f"worker(s) {names} failed {FORGET_AFTER} rounds running: dual forgotten, duals re-centred")
        totals.bytes_sent_per_worker += 4 * self.model.size

        def forget(workers: Workers) -> Workers:
            return forget_duals(workers, workers.failures >= FORGET_AFTER, MeshReduction())

        everywhere = jax.jit(self.mesh.on_every_device(forget, (SHARDED,), SHARDED), donate_argnums=0)
        workers = everywhere(state.consensus.workers)
        return state._replace(consensus=state.consensus._replace(workers=workers))

    def _evaluate(self, state: TrainState, episodes: int) -> Scores:
        """Evaluate z; a check that reaches the target is confirmed with more games."""
        totals, options = self.totals, self.options
        scores = self._play(state, episodes)
        target = options.target_return
        if target is not None and totals.steps_to_target is None and scores.mean >= target:
            if scores.episodes < options.final_episodes:
                scores = self._play(state, options.final_episodes)
            if scores.mean >= target:
                totals.steps_to_target, totals.seconds_to_target = totals.env_steps, totals.wall_seconds
                self.progress.message(f"target return {target:g} reached at {totals.env_steps:,} steps")
        return scores

    def _play(self, state: TrainState, episodes: int) -> Scores:
        totals = self.totals
        scores = self.evaluate(_weights(state), episodes, totals.rounds)
        totals.last_eval = scores.mean
        self.folder.evaluation(
            {
                "round": totals.rounds,
                "env_steps": totals.env_steps,
                "bytes_sent_per_worker": totals.bytes_sent_per_worker,
                "wall_seconds": totals.wall_seconds,
                "eval_return_mean": scores.mean,
                "eval_return_ci95": list(scores.ci95),
                "eval_episodes": scores.episodes,
                "unfinished": scores.unfinished,
                "mean_length": scores.mean_length,
                "returns": scores.returns,
                **scores.worker_record,
            }
        )
        if scores.unfinished:
            self._warn(f"{scores.unfinished} game(s) of the evaluation did not end and do not count")
        self.progress.message(f"z at {totals.env_steps:,} steps: {scores}")
        return scores

    def _wall_seconds(self) -> float:
        return time.monotonic() - self._wall_start

    def _save(self, state: TrainState) -> None:
        self.totals.wall_seconds = self._wall_seconds()
        manifest = {"totals": asdict(self.totals), "config": self.config.to_json()}
        self.checkpoints.save(self.totals.rounds, state, manifest)
        _weights(state).save(self.folder.path)

    def _warn(self, text: str) -> None:
        self.progress.warning(text)
        self.folder.event("warning", text=text)

    def _finish(self, state: TrainState) -> dict:
        totals, config, options = self.totals, self.config, self.options
        self._save(state)
        scores = self._evaluate(state, options.final_episodes)
        totals.wall_seconds = self._wall_seconds()
        z = np.asarray(state.consensus.shared.z)
        summary = {
            "algorithm": f"{config.rule}-{config.loss}",
            "rule": config.rule,
            "loss": config.loss,
            "env": config.env,
            "seed": config.seed,
            "workers": config.workers,
            "devices": self.mesh.num_devices,
            "env_steps": totals.env_steps,
            "rounds": totals.rounds,
            "local_steps": totals.rounds * config.steps_per_round,
            "eval_return_mean": scores.mean,
            "eval_return_ci95": list(scores.ci95),
            "eval_episodes": scores.episodes,
            **scores.worker_record,
            "steps_to_target": totals.steps_to_target,
            "seconds_to_target": totals.seconds_to_target,
            "wall_seconds": totals.wall_seconds,
            "compile_seconds": totals.compile_seconds,
            "env_steps_per_second": totals.env_steps / totals.round_seconds if totals.round_seconds else math.nan,
            "bytes_sent_per_worker": totals.bytes_sent_per_worker,
            "primal_residual": totals.primal_residual,
            "dual_residual": totals.dual_residual,
            "failed_updates": totals.failed_updates,
            "parameters": self.model.size,
            "z_sha256": hashlib.sha256(np.ascontiguousarray(z).tobytes()).hexdigest(),
            "state_sha256": sha256(saved_part(state, self.environment.spec.resumable)),
            "environments_in_state": self.environment.spec.resumable,
            "config": config.to_json() | {"run": asdict(options)},
            "environment": asdict(self.environment.spec),
            "versions": versions(),
            "hardware": hardware(),
            "git_commit": git_commit(),
        }
        self.folder.write_json(SUMMARY, summary)
        self._show(state)
        self.progress.message(f"summary in {self.folder.path / SUMMARY}")
        return summary

    def _show(self, state: TrainState) -> None:
        """Pictures of the run, for people: its page, and a game of z where there is something to see."""
        draw_page([self.folder.path], self.folder.path / PAGE)
        policy = Policy(self.config, self.environment.spec, _weights(state))
        if not self.options.gif or not can_record(policy):
            return
        try:
            score = record_game(policy, self.folder.path / GIF, greedy=self.options.greedy, seed=self.config.seed)
        except InvalidInput as error:  # ale-py is missing: the result stands without the picture
            self._warn(f"no game was recorded: {error}")
            return
        self.progress.message(f"recorded a game of return {score:g} in {self.folder.path / GIF}")


def _weights(state: TrainState) -> Weights:
    """The policy of z, on one device."""
    return Weights(*jax.tree.map(jnp.asarray, jax.device_get((state.consensus.shared.z, state.moments))))


def _choose_devices(workers: int, asked: int | None) -> int:
    """D: what was asked for, or the most that are there and divide the workers."""
    if asked is not None:
        check_worker_count(workers, asked)
        request_devices(asked)
        return asked
    if jax.default_backend() == "cpu":
        return 1
    return max(count for count in range(1, jax.device_count() + 1) if workers % count == 0)
