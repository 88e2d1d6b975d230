import jax
import jax.numpy as jnp
import numpy as np
import pytest

from admm_jax.rl import observations
from admm_jax.rl.networks import init_parameters, make_network


def seen(moments, rows, valid=None):
    rows = jnp.asarray(rows)
    valid = jnp.ones(rows.shape[0], bool) if valid is None else jnp.asarray(valid)
    return observations.merge(moments, observations.shifted_sums(rows, valid, moments))


def test_moments_by_hand():
    start = observations.initial_moments((2,), "float32")
    one = seen(start, [[1.0, 10.0], [3.0, 10.0]])
    assert (one.count, one.mean.tolist(), one.variance.tolist()) == (2, [2, 10], [1, 0])
    # 1, 3, 8: mean 4, squares 9 + 1 + 16; 10, 10, 4: mean 8, squares 4 + 4 + 16
    two = seen(one, [[8.0, 4.0]])
    np.testing.assert_allclose(two.mean, [4, 8], rtol=1e-6)
    np.testing.assert_allclose(two.variance, [26 / 3, 8], rtol=1e-6)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_any_split_of_the_data_gives_the_moments_of_all_of_it(workers, dtype):
    rng = np.random.default_rng(7)
    data = (rng.normal(200, 12, size=(5, 3, 8, 2, 3))).clip(0, 255).astype(dtype)  # rounds, workers, B, obs
    moments = observations.initial_moments((2, 3), dtype)
    for rows in data:
        parts = [
            observations.shifted_sums(jnp.asarray(part.reshape(-1, 2, 3)), jnp.ones(part.size // 6, bool), moments)
            for part in np.array_split(rows, workers)
        ]
        sums = observations.ShiftedSums(*[sum(leaves) for leaves in zip(*parts, strict=True)])
        moments = observations.merge(moments, sums)
    everything = data.reshape(-1, 2, 3).astype(np.float64)
    assert moments.count == len(everything)
    np.testing.assert_allclose(moments.mean, everything.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(moments.variance, everything.var(axis=0), rtol=1e-4)


def test_rows_that_are_no_transition_or_not_finite_do_not_count():
    start = seen(observations.initial_moments((2,), "float32"), [[1.0, 2.0], [3.0, 5.0]])
    rows = [[7.0, 7.0], [np.nan, 1.0], [5.0, 5.0]]
    moments = seen(start, rows, [False, True, True])
    assert moments.count == 3
    np.testing.assert_allclose(moments.mean, [3, 4], rtol=1e-6)


@pytest.mark.parametrize("before", [[], [[4.0], [6.0]]])
def test_nothing_new_changes_nothing(before):
    moments = observations.initial_moments((1,), "float32")
    if before:
        moments = seen(moments, before)
    after = seen(moments, [[9.0]], [False])
    np.testing.assert_array_equal(np.concatenate([*map(np.ravel, after)]), np.concatenate([*map(np.ravel, moments)]))


def test_normalized_floats():
    moments = observations.ObservationMoments(jnp.float32(9), jnp.array([1.0, -2.0, 0.0]), jnp.array([4.0, 0.25, 0.0]))
    rows = jnp.array([[2.0, -2.5, 1e-5], [100.0, -2.0, -1.0]])
    expected = [[0.5, -1, 0.1], [5, 0, -5]]
    np.testing.assert_allclose(observations.normalized(rows, moments), expected, rtol=1e-3)


def test_normalized_images_are_bytes():
    moments = observations.ObservationMoments(jnp.float32(9), jnp.array([87.0, 100.0, 5.0]), jnp.array([1.0, 81.0, 0]))
    rows = jnp.array([[90, 100, 5], [255, 80, 4]], jnp.uint8)
    result = observations.normalized(rows, moments)
    assert result.dtype == jnp.int8
    # (90 - 87) / (1 + 1), 0, 0; beyond the limit, (80 - 100) / (9 + 1), -1 / 1
    expected = [[1.5, 0, 0], [5, -2, -1]]
    np.testing.assert_allclose(result * observations.BYTE_STEP, expected, atol=observations.BYTE_STEP / 2)


def test_before_anything_was_seen_images_are_scaled_to_one_and_floats_left_alone():
    image = observations.normalized(jnp.array([0, 51, 255], jnp.uint8), observations.initial_moments((3,), "uint8"))
    np.testing.assert_allclose(image * observations.BYTE_STEP, [0, 0.2, 1], atol=observations.BYTE_STEP / 2)
    row = observations.normalized(jnp.array([0.3, -4.0]), observations.initial_moments((2,), "float32"))
    np.testing.assert_allclose(row, [0.3, -4.0], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "channels"), [("article", (2, 3)), ("nature", (2, 3, 4)), ("mlp", None)])
def test_networks_take_normalised_images(kind, channels):
    shape = (40, 36, 2)
    network = make_network(kind, 3, observation_shape=shape, channels=channels, hidden=(5,))
    moments = observations.ObservationMoments(jnp.float32(9), jnp.full(shape, 90.0), jnp.full(shape, 400.0))
    images = jnp.asarray(np.random.default_rng(3).integers(0, 256, (2, *shape)), jnp.uint8)
    parameters = jax.jit(lambda key: init_parameters(network, key, shape, "int8"))(jax.random.key(0))
    apply = jax.jit(network.apply)
    as_bytes = observations.normalized(images, moments)
    logits, value = apply(parameters, as_bytes)
    exact_logits, exact_value = apply(parameters, as_bytes.astype(jnp.float32) * observations.BYTE_STEP)
    np.testing.assert_allclose(logits, exact_logits, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value, exact_value, rtol=1e-4, atol=1e-5)
