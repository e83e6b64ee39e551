"""Many small problems at once: when they end, and how they go on."""

from dataclasses import replace

import numpy as np

from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt


class Roots:
    """``x^2 = a``."""

    def __init__(self, a):
        self.a = a

    def take(self, index):
        return Roots(self.a[index])

    def cost(self, x):
        return (x[:, 0] ** 2 - self.a) ** 2

    def linearize(self, x):
        return BatchedNormalEquations(4 * x[:, :, None] ** 2, 2 * x * (x**2 - self.a[:, None]))

    def move(self, x, steps):
        return x + steps


def test_an_iteration_that_is_taken_up_again_begins_with_its_damping():
    problems, ending = Roots(np.array([4.0, 9.0])), Ending(target=1e-28)
    x = np.array([[1.9], [3.1]])  # so close that no step is refused
    whole = batched_levenberg_marquardt(problems, x, replace(ending, max_iter=4))
    part = batched_levenberg_marquardt(problems, x, replace(ending, max_iter=2))
    rest = batched_levenberg_marquardt(problems, part.x, replace(ending, max_iter=2, damping=part.damping))
    assert np.all(part.damping < ending.damping) and np.all(part.cost > whole.cost)
    np.testing.assert_array_equal(rest.x, whole.x)


def test_no_step_is_made_after_the_deadline():
    result = batched_levenberg_marquardt(Roots(np.array([4.0])), np.ones((1, 1)), Ending(deadline=0.0))
    assert result.n_iter[0] == 0 and result.x[0, 0] == 1.0
