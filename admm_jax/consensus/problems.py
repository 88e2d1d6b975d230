"""Convex problems with known answers: min sum_i w_i f_i(z) + g(z), split over workers.

Each problem knows the gradient and the prox of every f_i (for all workers at once, along the leading axis W), its
regulariser g, and the solution a single machine would find. Problems are pytrees, so compiled functions take them as
arguments. Numbers are generated in float64; they are used in whatever precision JAX is set to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from admm_jax.consensus.regularizer import Regularizer
from admm_jax.errors import InvalidInput, at_least, finite

SAMPLES_PER_COORDINATE = 20
"""Samples of each worker per unknown: enough that every f_i is curved about equally (0.6 to 1.5) in all directions,
so that rho = 1 suits all of them."""


class Problem(Protocol):
    """min sum_i w_i f_i(z) + g(z); an unknown is a scalar or a vector, written [...]."""

    regularizer: Regularizer
    """g, for the rule to apply in its z-update."""

    @property
    def num_workers(self) -> int: ...

    @property
    def origin(self) -> jax.Array:
        """Zeros [...], where runs start."""
        ...

    def gradient(self, theta: jax.Array) -> jax.Array:
        """grad f_i(theta_i) of every worker, [W, ...] -> [W, ...]."""
        ...

    def prox(self, centre: jax.Array, penalty: jax.Array) -> jax.Array:
        """argmin f_i(theta) + penalty/2 |theta - centre_i|^2 of every worker, [W, ...] -> [W, ...]; scalar penalty."""
        ...

    def centralised(self, weights: Sequence[float] | None = None) -> np.ndarray:
        """The minimiser [...] in float64, accurate to about 1e-12; weights [W] are 1 each if None."""
        ...


@dataclass(frozen=True)
class Quadratics:
    """f_i(x) = a_i/2 (x - c_i)^2 of a scalar x. See `quadratics`.

    Attributes:
        curvature: a [W].
        centre: c [W].
        regularizer: g.
    """

    curvature: jax.Array
    centre: jax.Array
    regularizer: Regularizer

    @property
    def num_workers(self) -> int:
        return self.curvature.shape[0]

    @property
    def origin(self) -> jax.Array:
        return jnp.zeros(())

    def gradient(self, theta: jax.Array) -> jax.Array:
        return self.curvature * (theta - self.centre)

    def prox(self, centre: jax.Array, penalty: jax.Array) -> jax.Array:
        """A minimum only where penalty > -curvature; elsewhere the stationary point, which is none."""
        return (self.curvature * self.centre + penalty * centre) / (self.curvature + penalty)

    def centralised(self, weights: Sequence[float] | None = None) -> np.ndarray:
        pull = _weights(weights, self.num_workers) * self.curvature
        return _minimise_quadratic(
            np.array([[pull.sum()]]), np.array([(pull * self.centre).sum()]), self.regularizer, np.zeros(1)
        )[0]


@dataclass(frozen=True)
class LeastSquares:
    """f_i(x) = |A_i x - b_i|^2 / (2 n), kept as its spectrum. See `lasso` and `ridge`.

    Attributes:
        eigenvalues, eigenvectors: of A_i'A_i / n, [W, d] and [W, d, d] (in columns): with them the prox needs no
            factorisation for any penalty.
        linear: A_i'b_i / n, [W, d].
        regularizer: g.
    """

    eigenvalues: jax.Array
    eigenvectors: jax.Array
    linear: jax.Array
    regularizer: Regularizer

    @property
    def num_workers(self) -> int:
        return self.linear.shape[0]

    @property
    def origin(self) -> jax.Array:
        return jnp.zeros(self.linear.shape[1:])

    def gradient(self, theta: jax.Array) -> jax.Array:
        return self._along_eigenvectors(theta, self.eigenvalues) - self.linear

    def prox(self, centre: jax.Array, penalty: jax.Array) -> jax.Array:
        return self._along_eigenvectors(self.linear + penalty * centre, 1 / (self.eigenvalues + penalty))

    def centralised(self, weights: Sequence[float] | None = None) -> np.ndarray:
        weights = _weights(weights, self.num_workers)
        scaled = weights[:, None] * np.asarray(self.eigenvalues)
        hessian = np.einsum("wij,wj,wkj->ik", self.eigenvectors, scaled, self.eigenvectors)
        linear = weights @ np.asarray(self.linear)
        return _minimise_quadratic(hessian, linear, self.regularizer, np.zeros(len(linear)))

    def _along_eigenvectors(self, vectors: jax.Array, factors: jax.Array) -> jax.Array:
        coordinates = jnp.einsum("wij,wi->wj", self.eigenvectors, vectors)
        return jnp.einsum("wij,wj->wi", self.eigenvectors, factors * coordinates)


@dataclass(frozen=True)
class Logistic:
    """f_i(x) = mean_j log(1 + exp(-y_j a_j.x)) + l2/2 |x|^2. See `logistic`.

    Attributes:
        margins: y_j a_j, [W, n, d], labels y in {-1, 1}.
        l2: curvature that every f_i has at least; > 0.
        regularizer: g.
    """

    margins: jax.Array
    l2: float
    regularizer: Regularizer

    @property
    def num_workers(self) -> int:
        return self.margins.shape[0]

    @property
    def origin(self) -> jax.Array:
        return jnp.zeros(self.margins.shape[2:])

    def gradient(self, theta: jax.Array) -> jax.Array:
        return jax.vmap(self._gradient)(self.margins, theta)

    def prox(self, centre: jax.Array, penalty: jax.Array) -> jax.Array:
        """Newton's method, each step as long as shortens the gradient most; quadratic convergence to round-off."""

        def newton(worker: tuple[jax.Array, jax.Array]) -> jax.Array:
            margins, target = worker

            def gradient(theta: jax.Array) -> jax.Array:
                return self._gradient(margins, theta) + penalty * (theta - target)

            def step(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
                theta, current, count = carry
                likely = jax.nn.sigmoid(margins @ theta)
                hessian = (margins.T * (likely * (1 - likely))) @ margins / margins.shape[0]
                hessian += (self.l2 + penalty) * jnp.eye(theta.shape[0])
                direction = jnp.linalg.solve(hessian, current)
                # Compared by their gradients: objectives near the minimum differ by less than round-off.
                candidates = theta - 0.5 ** jnp.arange(8.0)[:, None] * direction
                gradients = jax.vmap(gradient)(candidates)
                best = jnp.argmin(jnp.square(gradients).sum(axis=1))
                return candidates[best], gradients[best], count + 1

            def unfinished(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
                _, current, count = carry
                size = jnp.abs(current).max()
                return (size > 10 * jnp.finfo(current.dtype).eps * (1 + penalty)) & (count < 30)

            return jax.lax.while_loop(unfinished, step, (target, gradient(target), jnp.zeros((), jnp.int32)))[0]

        # One after the other: batched LAPACK calls can deadlock in the CPU client's thread pool.
        return jax.lax.map(newton, (self.margins, centre))

    def centralised(self, weights: Sequence[float] | None = None) -> np.ndarray:
        weights = _weights(weights, self.num_workers)
        margins = np.asarray(self.margins)
        scale = (weights / margins.shape[1])[:, None]
        l2 = self.l2 * weights.sum()

        def value(z: np.ndarray) -> float:
            smooth = np.sum(scale * np.logaddexp(0, -(margins @ z))) + l2 / 2 * z @ z
            return float(smooth + self.regularizer.l1 * np.abs(z).sum() + self.regularizer.l2 / 2 * z @ z)

        z = np.zeros(margins.shape[2])
        for _ in range(100):
            unlikely = 1 / (1 + np.exp(margins @ z))
            gradient = l2 * z - np.einsum("wnd,wn->d", margins, scale * unlikely)
            curvature = scale * unlikely * (1 - unlikely)
            hessian = np.einsum("wni,wn,wnj->ij", margins, curvature, margins) + l2 * np.eye(len(z))
            step = _minimise_quadratic(hessian, hessian @ z - gradient, self.regularizer, z) - z
            # At the end the values tie to round-off, and the full step is right.
            before, length = value(z), 1.0
            while value(z + length * step) > before + 1e-13 * abs(before) and length > 1e-10:
                length /= 2
            z = z + length * step
            if np.abs(step).max() < 1e-13 * (1 + np.abs(z).max()):
                break
        return z

    def _gradient(self, margins: jax.Array, theta: jax.Array) -> jax.Array:
        return self.l2 * theta - margins.T @ jax.nn.sigmoid(-(margins @ theta)) / margins.shape[0]


for _problem, _arrays in (
    (Quadratics, ["curvature", "centre"]),
    (LeastSquares, ["eigenvalues", "eigenvectors", "linear"]),
    (Logistic, ["margins", "l2"]),
):
    jax.tree_util.register_dataclass(_problem, data_fields=_arrays, meta_fields=["regularizer"])


def quadratics(curvature: Sequence[float], centre: Sequence[float], l1: float = 0.0) -> Quadratics:
    """f_i(x) = a_i/2 (x - c_i)^2 for a scalar x, g(z) = l1 |z|.

    Args:
        curvature: a [W], finite; negative curvature is allowed.
        centre: c [W], finite.
        l1: weight of |z|.

    Raises:
        InvalidInput: no workers, another number of centres than of curvatures, or a number that is not finite.
    """
    a, c = np.asarray(curvature, np.float64), np.asarray(centre, np.float64)
    if a.ndim != 1 or a.size == 0 or not np.isfinite(a).all():
        raise InvalidInput("curvature", curvature, "one finite number per worker, for one worker or more")
    if c.shape != a.shape or not np.isfinite(c).all():
        raise InvalidInput("centre", centre, f"{a.size} finite numbers, one per worker, as many as curvatures")
    return Quadratics(a, c, Regularizer(l1=l1))


def lasso(workers: int = 4, dim: int = 20, seed: int = 0, l1: float = 0.5) -> LeastSquares:
    """sum_i |A_i z - b_i|^2 / (2 n) + l1 |z|_1 on random data; every other true coefficient is 0.

    The 1-norm is carried by the consensus alone: g(z) = l1 |z|_1 (Boyd et al. 2011, section 8.2.1).

    Args:
        workers: W.
        dim: d, the number of unknowns; each worker has n = 20 d samples.
        seed: of NumPy's generator.
        l1: weight of the 1-norm against the *sum* of the workers' means; it moves z by about l1 / W.

    Raises:
        InvalidInput: ``workers`` or ``dim`` below 1, ``seed`` or ``l1`` negative, ``l1`` not finite.
    """
    return _least_squares(workers, dim, seed, Regularizer(l1=l1))


def ridge(workers: int = 4, dim: int = 20, seed: int = 0, l1: float = 0.0, l2: float = 2.0) -> LeastSquares:
    """sum_i |A_i z - b_i|^2 / (2 n) + l2/2 |z|^2 on random data; g(z) = l1 |z|_1 + l2/2 |z|^2, as in `lasso`."""
    return _least_squares(workers, dim, seed, Regularizer(l1=l1, l2=l2))


def logistic(workers: int = 4, dim: int = 20, seed: int = 0, l1: float = 0.0, l2: float = 0.1) -> Logistic:
    """sum_i mean_j log(1 + exp(-y_j a_j.z)) + l2/2 |z|^2 on random data, g(z) = l1 |z|_1.

    Each f_i carries its own l2 term, so the sum has W l2/2 |z|^2. Features have standard deviation 2, which makes
    the curvature about 1 where labels are uncertain.

    Args:
        workers, dim, seed, l1: as in `lasso`.
        l2: finite, above 0; without it separable labels would have no minimum.

    Raises:
        InvalidInput: a value outside its range.
    """
    finite("l2", l2, above=0)
    regularizer = Regularizer(l1=l1)
    features, truth, random = _random_data(workers, dim, seed)
    features, truth = 2 * features, truth / (2 * np.sqrt(dim))
    likely = 1 / (1 + np.exp(-np.einsum("wnd,wd->wn", features, truth)))
    labels = np.where(random.uniform(size=likely.shape) < likely, 1.0, -1.0)
    return Logistic(labels[..., None] * features, l2, regularizer)


def relative_distance(z: np.ndarray, target: np.ndarray) -> float:
    """|z - target| / |target| in 2-norms, or |z| where the target is 0."""
    scale = float(np.linalg.norm(target))
    return float(np.linalg.norm(np.asarray(z) - target)) / (scale if scale > 0 else 1.0)


def _least_squares(workers: int, dim: int, seed: int, regularizer: Regularizer) -> LeastSquares:
    features, truth, random = _random_data(workers, dim, seed)
    samples = features.shape[1]
    targets = np.einsum("wnd,wd->wn", features, truth) + 0.5 * random.normal(size=features.shape[:2])
    eigenvalues, eigenvectors = np.linalg.eigh(np.einsum("wni,wnj->wij", features, features) / samples)
    linear = np.einsum("wni,wn->wi", features, targets) / samples
    return LeastSquares(eigenvalues, eigenvectors, linear, regularizer)


def _random_data(workers: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Features [W, n, d], true coefficients [W, d] that differ a little between workers, and the generator."""
    for field, value, low in (("workers", workers, 1), ("dim", dim, 1), ("seed", seed, 0)):
        at_least(field, value, low)
    random = np.random.default_rng(seed)
    common = random.normal(size=dim) * (np.arange(dim) % 2 == 0)
    truth = common + 0.3 * random.normal(size=(workers, dim))
    features = random.normal(size=(workers, SAMPLES_PER_COORDINATE * dim, dim))
    return features, truth, random


def _weights(weights: Sequence[float] | None, num_workers: int) -> np.ndarray:
    return np.ones(num_workers) if weights is None else np.asarray(weights, np.float64)


def _minimise_quadratic(
    hessian: np.ndarray, linear: np.ndarray, regularizer: Regularizer, start: np.ndarray
) -> np.ndarray:
    """argmin z'Hz/2 - linear.z + l1 |z|_1 + l2/2 |z|^2: solved, or with an l1 term by coordinate descent to round-off
    (Friedman, Hastie & Tibshirani 2010, "Regularization Paths for Generalized Linear Models", section 2)."""
    hessian = hessian + regularizer.l2 * np.eye(len(linear))
    if regularizer.l1 == 0:
        return np.linalg.solve(hessian, linear)
    z, diagonal = start.copy(), np.diag(hessian)
    rest = linear - hessian @ z
    for _ in range(100_000):
        largest = 0.0
        for j in range(len(z)):
            partial = rest[j] + diagonal[j] * z[j]
            new = np.sign(partial) * max(abs(partial) - regularizer.l1, 0) / diagonal[j]
            move = new - z[j]
            if move:
                rest -= hessian[:, j] * move
                z[j] = new
                largest = max(largest, abs(move))
        if largest <= 1e-15 * (1 + np.abs(z).max()):
            break
    return z
