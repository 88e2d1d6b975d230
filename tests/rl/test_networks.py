from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from admm_jax.errors import InvalidInput
from admm_jax.rl.networks import init_parameters, make_network

CASES = {
    "article": ("article", (42, 42, 4), {"channels": (5, 7), "hidden": (11,)}),
    "article, odd frame": ("article", (9, 14, 2), {"channels": (3, 4), "hidden": (6, 5)}),
    "nature": ("nature", (36, 40, 2), {"channels": (3, 4, 5), "hidden": (6,)}),
}


class FlaxArticle(nn.Module):
    """The article's network in flax's own layers, with the parameter names of ours."""

    @nn.compact
    def __call__(self, images):
        x = images.astype(jnp.float32) / 255
        for layer, features in enumerate((5, 7)):
            x = nn.relu(nn.Conv(features, (3, 3), (2, 2), "SAME", name=f"Convolution_{layer}")(x))
        x = nn.relu(nn.Dense(11, name="dense_0")(x.reshape(x.shape[0], -1)))
        return nn.Dense(6, name="policy_head")(x), nn.Dense(1, name="value_head")(x)[:, 0]


def images(shape, count=3):
    return jnp.asarray(np.random.default_rng(2).integers(0, 256, (count, *shape)), jnp.uint8)


def loud_parameters(network, shape, dtype=jnp.uint8):
    """Parameters none of which is 0 or tiny, so that every one of them shows in the output."""
    tree = jax.eval_shape(lambda key: init_parameters(network, key, shape, dtype), jax.random.key(0))
    rng = np.random.default_rng(8)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 0.1, leaf.dtype), tree)


@partial(jax.jit, static_argnums=0)
def outputs_and_gradient(network, parameters, observation):
    def scalar(parameters):
        logits, value = network.apply(parameters, observation)
        return jnp.sum(jnp.cos(logits)) + jnp.sum(jnp.sin(value)), (logits, value)

    return jax.grad(scalar, has_aux=True)(parameters)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "shape", "sizes"), CASES.values(), ids=CASES.keys())
def test_both_implementations_give_the_same_numbers(kind, shape, sizes):
    results = []
    for implementation in ("patches", "lax"):
        network = make_network(kind, 6, observation_shape=shape, implementation=implementation, **sizes)
        parameters = loud_parameters(network, shape)
        results.append(outputs_and_gradient(network, parameters, images(shape)))
        chex.assert_shape(results[-1][1], [(3, 6), (3,)])
        chex.assert_type(results[-1][1], jnp.float32)
    chex.assert_trees_all_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("implementation", ["patches", "lax"])
def test_article_network_equals_flax_layers(implementation):
    network = make_network("article", 6, channels=(5, 7), hidden=(11,), implementation=implementation)
    parameters = loud_parameters(network, (42, 42, 4))
    chex.assert_trees_all_close(
        outputs_and_gradient(network, parameters, images((42, 42, 4))),
        outputs_and_gradient(FlaxArticle(), parameters, images((42, 42, 4))),
        rtol=1e-4,
        atol=1e-4,
    )


def test_default_sizes():
    def shapes(kind, shape, dtype):
        network = make_network(kind, 6)
        tree = jax.eval_shape(lambda key: init_parameters(network, key, shape, dtype), jax.random.key(0))["params"]
        return {name: layer["kernel"].shape for name, layer in tree.items()}

    assert shapes("article", (42, 42, 4), jnp.uint8) == {
        "Convolution_0": (3, 3, 4, 32),
        "Convolution_1": (3, 3, 32, 32),
        "dense_0": (11 * 11 * 32, 256),
        "policy_head": (256, 6),
        "value_head": (256, 1),
    }
    assert shapes("nature", (84, 84, 4), jnp.uint8) == {
        "Convolution_0": (8, 8, 4, 32),
        "Convolution_1": (4, 4, 32, 64),
        "Convolution_2": (3, 3, 64, 64),
        "dense_0": (7 * 7 * 64, 512),
        "policy_head": (512, 6),
        "value_head": (512, 1),
    }
    assert shapes("mlp", (5,), jnp.float32) == {
        "policy_0": (5, 64),
        "policy_1": (64, 64),
        "policy_head": (64, 6),
        "value_0": (5, 64),
        "value_1": (64, 64),
        "value_head": (64, 1),
    }


def test_mlp_by_hand_and_towers_apart():
    network = make_network("mlp", 2, hidden=(3,))
    parameters = loud_parameters(network, (2, 2), jnp.float32)
    x = jax.random.normal(jax.random.key(1), (5, 2, 2))
    logits, value = network.apply(parameters, x)

    def layer(name, x):
        return x @ parameters["params"][name]["kernel"] + parameters["params"][name]["bias"]

    flat = x.reshape(5, 4)
    np.testing.assert_allclose(logits, layer("policy_head", jnp.tanh(layer("policy_0", flat))), rtol=1e-5)
    np.testing.assert_allclose(value, layer("value_head", jnp.tanh(layer("value_0", flat)))[:, 0], rtol=1e-5)


def test_shared_tower():
    network = make_network("mlp", 4, hidden=(7, 5), shared=True)
    parameters = loud_parameters(network, (3,), jnp.float32)
    assert set(parameters["params"]) == {"shared_0", "shared_1", "policy_head", "value_head"}
    chex.assert_shape(network.apply(parameters, jnp.ones((2, 3))), [(2, 4), (2,)])


@pytest.mark.parametrize(
    ("observation", "as_float"),
    [
        (jnp.array([[0, 51, 255]], jnp.uint8), jnp.array([[0, 0.2, 1]])),
        (jnp.array([[True, False, True]]), jnp.array([[1.0, 0.0, 1.0]])),
        (jnp.array([[3, -2, 300]], jnp.int32), jnp.array([[3.0, -2.0, 300.0]])),
    ],
    ids=["uint8", "bool", "int32"],
)
def test_how_observations_become_floats(observation, as_float):
    network = make_network("mlp", 3, hidden=(4,))
    parameters = loud_parameters(network, (3,), observation.dtype)
    chex.assert_trees_all_close(network.apply(parameters, observation), network.apply(parameters, as_float))


def test_float_images_are_taken_as_they_are():
    network = make_network("article", 3, channels=(2, 3), hidden=(4,))
    parameters = loud_parameters(network, (8, 8, 1))
    apply = jax.jit(network.apply)
    x = images((8, 8, 1))
    chex.assert_trees_all_close(
        apply(parameters, x.astype(jnp.float32) / 255), apply(parameters, x), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_initial_weights_are_orthogonal_with_their_gains():
    network = make_network("article", 3, channels=(6, 8), hidden=(10,))
    tree = init_parameters(network, jax.random.key(4), (8, 8, 4), jnp.uint8)["params"]

    def gram(name):
        kernel = tree[name]["kernel"].reshape(-1, tree[name]["kernel"].shape[-1])
        return kernel.T @ kernel

    gains = {"Convolution_0": 2, "Convolution_1": 2, "dense_0": 2, "policy_head": 1e-4, "value_head": 1}
    for name, squared_gain in gains.items():
        expected = squared_gain * np.eye(tree[name]["kernel"].shape[-1])
        np.testing.assert_allclose(gram(name), expected, atol=1e-5 * squared_gain)
        np.testing.assert_array_equal(tree[name]["bias"], 0)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: make_network("articel", 3), "network"),
        (lambda: make_network("article", 3, implementation="fast"), "implementation"),
        (lambda: make_network("article", 0), "num_actions"),
        (lambda: make_network("article", 3, observation_shape=(4,)), "observation_shape"),
        (lambda: make_network("nature", 3, observation_shape=(84, 84)), "observation_shape"),
        (lambda: make_network("nature", 3, observation_shape=(35, 84, 4)), "observation_shape"),
        (lambda: make_network("article", 3, channels=(16,)), "channels"),
        (lambda: make_network("nature", 3, channels=(16, 0, 16)), "channels"),
        (lambda: make_network("mlp", 3, channels=(16, 16)), "channels"),
        (lambda: make_network("mlp", 3, hidden=(64, -1)), "hidden"),
        (lambda: make_network("mlp", 3, implementation="lax"), "implementation"),
        (lambda: make_network("article", 3, shared=True), "shared"),
        (lambda: init_parameters(make_network("article", 3), jax.random.key(0), (4,), jnp.float32), "shape"),
        (lambda: init_parameters(make_network("nature", 3), jax.random.key(0), (8, 8, 4), jnp.uint8), "shape"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_compiles(make, field):
    with pytest.raises(InvalidInput, match=field):
        make()


def test_a_misspelt_network_is_guessed():
    with pytest.raises(InvalidInput, match="did you mean article"):
        make_network("articel", 3)


def test_36_pixels_are_the_least_for_nature():
    make_network("nature", 3, observation_shape=(36, 36, 1))
