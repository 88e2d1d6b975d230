import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.errors import InvalidInput
from admm_jax.rl import losses

BOTH = [lambda f: f, jax.jit]


def hand_batch():
    """Four steps, two actions; probabilities of the action taken now and at the time of acting are round numbers."""
    now = np.array([0.6, 0.2, 0.5, 0.45])
    then = np.array([0.4, 0.4, 0.4, 0.5])  # ratios 1.5, 0.5, 1.25, 0.9
    logits = jnp.log(jnp.asarray(np.stack([now, 1 - now], axis=1), jnp.float32))
    value = jnp.array([1.0, 2.0, 3.0, 4.0])
    batch = losses.Minibatch(
        observation=jnp.zeros((4, 3)),
        action=jnp.zeros(4, jnp.int32),
        log_prob=jnp.log(jnp.asarray(then, jnp.float32)),
        value=jnp.array([1.0, 1.0, 3.5, 4.1]),
        advantage=jnp.array([2.0, -4.0, -1.0, 3.0]),
        target=jnp.array([2.0, 0.0, 3.0, 7.0]),
        valid=jnp.ones(4, bool),
    )
    return logits, value, batch, now, then


def entropy_of(now):
    return -(now * np.log(now) + (1 - now) * np.log(1 - now))


def ppo(clip=0.2, value_weight=0.7, entropy_weight=0.03, clip_value=False):
    return losses.PPOLoss(clip, value_weight, entropy_weight, clip_value)


@pytest.mark.parametrize("transform", BOTH, ids=["plain", "jit"])
def test_ppo_by_hand(transform):
    logits, value, batch, now, then = hand_batch()
    loss, metrics = transform(ppo())(logits, value, batch)
    # min(ratio A, clip(ratio, 0.8, 1.2) A): min(3, 2.4), min(-2, -3.2), min(-1.25, -1.2), 2.7
    policy_loss = -(2.4 - 3.2 - 1.25 + 2.7) / 4
    value_loss = 0.5 * (1 + 4 + 0 + 9) / 4
    entropy = entropy_of(now).mean()
    ratio = now / then
    np.testing.assert_allclose(metrics.policy_loss, policy_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics.value_loss, value_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics.entropy, entropy, rtol=1e-5)
    np.testing.assert_allclose(metrics.approx_kl, (ratio - 1 - np.log(ratio)).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics.clip_fraction, 3 / 4)
    np.testing.assert_allclose(loss, policy_loss + 0.7 * value_loss - 0.03 * entropy, rtol=1e-5)


def test_ppo_with_clipped_values_by_hand():
    logits, value, batch, *_ = hand_batch()
    _, metrics = ppo(clip_value=True)(logits, value, batch)
    # values kept within 0.2 of the old ones: 1, 1.2, 3.3, 4; the larger squared error of the two counts
    larger = [1, max(4, 1.44), max(0, 0.09), 9]
    np.testing.assert_allclose(metrics.value_loss, 0.5 * np.mean(larger), rtol=1e-5)


@pytest.mark.parametrize("transform", BOTH, ids=["plain", "jit"])
def test_a2c_by_hand(transform):
    logits, value, batch, now, then = hand_batch()
    loss, metrics = transform(losses.A2CLoss(0.7, 0.03))(logits, value, batch)
    policy_loss = -(np.log(now) * np.array([2, -4, -1, 3])).mean()
    ratio = now / then
    np.testing.assert_allclose(metrics.policy_loss, policy_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics.approx_kl, (ratio - 1 - np.log(ratio)).mean(), rtol=1e-4)
    assert metrics.clip_fraction == 0
    np.testing.assert_allclose(loss, policy_loss + 0.7 * 1.75 - 0.03 * entropy_of(now).mean(), rtol=1e-5)


def test_gradients_of_ppo_and_a2c_agree_where_the_policy_has_not_moved():
    logits, value, batch, now, _ = hand_batch()
    batch = batch._replace(log_prob=jnp.log(jnp.asarray(now, jnp.float32)))
    gradients = [
        jax.grad(lambda x, loss=loss: loss(x, value, batch)[0])(logits) for loss in (ppo(), losses.A2CLoss(0.7, 0.03))
    ]
    chex.assert_trees_all_close(*gradients, rtol=1e-5, atol=1e-6)


def test_clipped_steps_have_no_policy_gradient():
    logits, value, batch, *_ = hand_batch()
    gradient = jax.grad(lambda x: ppo(value_weight=0.0, entropy_weight=0.0)(x, value, batch)[0])(logits)
    # The first two moved past the clip in the direction of their advantage, the last two did not.
    np.testing.assert_array_equal(np.abs(gradient).sum(axis=1) > 0, [False, False, True, True])


@pytest.mark.parametrize("loss", [ppo(clip_value=True), losses.A2CLoss(0.7, 0.03)], ids=["ppo", "a2c"])
@pytest.mark.parametrize("rubbish", [np.nan, np.inf])
def test_invalid_steps_leave_no_trace(loss, rubbish):
    logits, value, batch, *_ = hand_batch()
    kept = jnp.array([0, 2])
    expected = loss(logits[kept], value[kept], jax.tree.map(lambda x: x[kept], batch))
    mask = jnp.array([True, False, True, False])

    def spoil(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, rubbish)

    spoilt = jax.tree.map(spoil, batch)._replace(valid=mask, action=jnp.where(mask, batch.action, 99))
    logits, value = spoil(logits), spoil(value)
    chex.assert_trees_all_close(loss(logits, value, spoilt), expected, rtol=1e-5)
    gradients = jax.grad(lambda x, v: loss(x, v, spoilt)[0], argnums=(0, 1))(logits, value)
    chex.assert_tree_all_finite(gradients)
    for gradient in gradients:
        np.testing.assert_array_equal(gradient[~mask], 0)


@pytest.mark.parametrize("loss", [ppo(), losses.A2CLoss(0.7, 0.03)], ids=["ppo", "a2c"])
def test_no_valid_step_gives_loss_and_gradient_zero(loss):
    logits, value, batch, *_ = hand_batch()
    batch = batch._replace(valid=jnp.zeros(4, bool), advantage=jnp.full(4, np.nan))
    (total, metrics), gradients = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(logits, value, batch)
    for x in jax.tree.leaves((total, metrics, gradients)):
        np.testing.assert_array_equal(x, 0)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: losses.PPOLoss(clip=0.0), "clip"),
        (lambda: losses.PPOLoss(clip=float("inf")), "clip"),
        (lambda: losses.PPOLoss(value_weight=-0.1), "value_weight"),
        (lambda: losses.PPOLoss(entropy_weight=float("nan")), "entropy_weight"),
        (lambda: losses.A2CLoss(value_weight=float("inf")), "value_weight"),
        (lambda: losses.A2CLoss(entropy_weight=-1.0), "entropy_weight"),
    ],
)
def test_settings_out_of_range_are_refused_at_construction(make, field):
    with pytest.raises(InvalidInput, match=field):
        make()


def test_every_loss_by_name_shares_one_signature():
    logits, value, batch, *_ = hand_batch()
    for make in losses.LOSSES.values():
        loss, metrics = make()(logits, value, batch)
        chex.assert_shape([loss, *metrics], ())
        assert isinstance(metrics, losses.LossMetrics)


def test_shapes_are_checked():
    logits, value, batch, *_ = hand_batch()
    with pytest.raises(AssertionError):
        ppo()(logits, value[:, None], batch)
    with pytest.raises(AssertionError):
        ppo()(logits, value, batch._replace(target=batch.target[:3]))
