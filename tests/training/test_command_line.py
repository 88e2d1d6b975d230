"""Flags become a checked run; what is wrong ends with status 2 before anything starts."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from admm_jax.errors import InvalidInput
from admm_jax.training.command_line import parse_run
from admm_jax.training.run_folder import RunFolder, read_rows
from tests.training.builders import cartpole

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "--env gymnax:CartPole-v1 --workers 2 --envs-per-worker 2 --rollout 8 --minibatches 2 --hidden 8 "
    "--eval-every 0 --final-episodes 2"
).split()


def parse(text):
    return parse_run(text.split(), "test")


def script(*arguments, **settings):
    cache = Path(settings["cwd"]).parent / "cache"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "experiments" / "pong_admm.py"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **settings,
    )  # fmt: skip


def test_no_argument_is_atari_pong_with_admm():
    config, options = parse("")
    assert (config.env, config.rule, config.loss) == ("Pong-v5", "admm", "ppo")
    assert options.resume is None


def test_defaults_follow_the_environment():
    assert parse("--env gymnax:CartPole-v1")[0].network == "mlp"
    assert parse("--env=gymnax:CartPole-v1")[0].workers == 8
    assert parse("--env Breakout-v5")[0].network == "article"
    assert parse("--loss a2c")[0].local_epochs == 1


def test_flags_win_over_defaults_and_presets():
    config, options = parse("--preset smoke --workers 2 --total-steps 99 --kappa 0.7 --channels 4 8")
    assert (config.workers, config.kappa, config.channels) == (2, 0.7, (4, 8))
    assert options.total_steps == 99
    assert config.rollout == 32


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("--rule fedavg --kappa 0.3", "kappa"),
        ("--inner gradient --kappa 0.3", "kappa"),
        ("--rho 1", "rho"),
        ("--rule gradient --restart worker", "restart"),
        ("--minibatches 7", "minibatches"),
        ("--total-steps 0", "total_steps"),
        ("--seed -1", "seed"),
        ("--lr nan", "lr"),
        ("--env Pnog-v5", "env"),
        ("--preset smoek", "preset"),
        ("--rule admmm", "rule"),
        ("--loss dqn", "loss"),
        ("--resume /nowhere/at/all", "resume"),
    ],
)
def test_what_does_not_fit_names_the_field(text, field):
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    assert caught.value.field == field


@pytest.mark.parametrize("text", ["--worker 3", "--lr fast"])
def test_unknown_flags_and_malformed_values(text, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(text)
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert text.split()[0] in message
    if text == "--worker 3":
        assert "--workers" in message


def test_help_names_units_and_defaults(capsys):
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for flag in (
        "env rule loss workers envs-per-worker rollout local-epochs minibatches lr anneal-steps anneal-from lr-end "
        "kappa rho inner restart share-moment-every rollouts-per-round gamma total-steps "
        "target-return seed run-dir devices resume"
    ).split():
        assert f"--{flag}" in text


def test_resuming_starts_from_the_runs_own_settings(tmp_path):
    config = cartpole(lr=0.0123)
    RunFolder.create(tmp_path / "run", {"train": config.to_json(), "run": {"total_steps": 77}}).close()
    again, options = parse(f"--resume {tmp_path / 'run'}")
    assert again == config
    assert options.total_steps == 77
    assert parse(f"--resume {tmp_path / 'run'} --total-steps 99 --lr 0.0123")[1].total_steps == 99
    for flags, named in [("--rule fedavg", "rule"), ("--workers 4 --gamma 0.5", "gamma"), ("--env jax-pong", "env")]:
        with pytest.raises(InvalidInput, match=named) as caught:
            parse(f"--resume {tmp_path / 'run'} {flags}")
        assert caught.value.field == "resume"


@pytest.mark.slow
def test_status_2_in_seconds_and_no_folder(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = script("--rule", "fedavg", "--rho", "1", "--run-dir", str(tmp_path / "run"), cwd=tmp_path)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "rho" in errors
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20  # of the processor
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_and_a_resumed_run_goes_on(tmp_path, number, status):
    folder = tmp_path / "run"
    process = script(*SMALL, "--run-dir", str(folder), "--total-steps", "100000000", "--log-every", "1", cwd=tmp_path)
    deadline = time.monotonic() + 200
    while not (folder / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(number)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == status, errors
    assert "--resume" in output
    rounds = read_rows(folder / "metrics.jsonl")[-1]["round"]
    if number == signal.SIGTERM:
        return
    # The steps asked for are done already: it restores, evaluates and writes the summary.
    again = script("--resume", str(folder), "--total-steps", "1", "--devices", "2", cwd=tmp_path)
    _, errors = again.communicate(timeout=200)
    assert again.returncode == 0, errors
    assert (folder / "summary.json").exists()
    assert read_rows(folder / "metrics.jsonl")[-1]["round"] == rounds


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_kill_loses_only_what_was_not_saved(tmp_path):
    folder = tmp_path / "run"
    process = script(
        *SMALL,
        *("--run-dir", str(folder), "--total-steps", "100000000", "--checkpoint-minutes", "0", "--devices", "2"),
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 200
    while len(list((folder / "checkpoints").glob("0*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    process.kill()
    process.communicate(timeout=200)
    again = script("--resume", str(folder), "--total-steps", "100", cwd=tmp_path)
    _, errors = again.communicate(timeout=200)
    assert again.returncode == 0, errors
    rows = read_rows(folder / "metrics.jsonl")
    assert [row["round"] for row in rows] == list(range(1, len(rows) + 1))
