"""The known network of an audit, and what of it a black box's outputs are compared with."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import SUM_TOL
from skident.network import FeedforwardNetwork
from skident.oracle import are_probabilities, check_probabilities
from skident.oracle.black_box import (
    gives_probabilities,
    is_onnx_model,
    is_torch_module,
    known_network,
    resolve_response,
)

from .links import VALUES, Probabilities

_AS_LOGITS = 0.1  # mean difference, over the deviation of the logits, of outputs that lack their softmax


@dataclass(frozen=True)
class Reference:
    """A network with known weights.

    Attributes
    ----------
    network : FeedforwardNetwork
    logits : FeedforwardNetwork or None
        The same without a sigmoid at its only output; None if its outputs are no logits.
    probabilities : bool or None
        Whether probabilities are compared; None if the black box's outputs decide.
    only_single : bool
        Whether its weights may be rounded to float32 where those of the black box are not, or the other way round.
    """

    network: FeedforwardNetwork
    logits: FeedforwardNetwork | None
    probabilities: bool | None
    only_single: bool

    @classmethod
    def of(cls, network, black_box, response_method):
        """The known one of two models; raises as `known_network` and `resolve_response`, also for swapped arguments."""
        _refuse_swapped(black_box, network)
        known = known_network(network)
        response = resolve_response(black_box, response_method)
        declared = response == "predict_proba" or gives_probabilities(network)
        probabilities = False if response_method == "predict" else declared or None
        logits = _logits_of(known)
        if logits is None and response == "predict_proba":
            raise ValueError(
                f"the reference's output_activation is {known.output_activation!r}, so its {known.n_outputs} outputs "
                "are not logits of classes; use response_method='predict'."
            )
        return cls(known, logits, probabilities, _only_single(black_box, known))

    def compared(self, X, Y, precision):
        """The network, the function of its outputs that is compared with Y (n, c) at X (n, D), and `lacks_softmax`.

        Probabilities are compared if they are declared, or if outputs that may be probabilities are nearer to the
        network's probabilities than to its logits.
        """
        given, wanted = Y.shape[1], self.network.n_outputs
        fits = {given, wanted} == {1, 2} or given == wanted
        if fits and self.logits is not None and self.probabilities is not False:
            link, Z = Probabilities(given), self.logits(X)
            nearer = given != wanted or np.abs(Y - link.values(Z)).mean() < np.abs(Y - Z).mean()
            step = 10.0**-precision.decimals if precision.kind == "decimals" else 0.0
            alike = are_probabilities(Y, max(SUM_TOL, 0.5 * step))
            if nearer and alike or self.probabilities and (alike or not _are_logits(Y, Z)):
                check_probabilities(Y, precision)
                return self.logits, link, False
            if self.probabilities or (self.logits is not self.network and _are_logits(Y, Z)):
                return self.logits, link, True
        if given != wanted:
            raise ValueError(f"the black box gives {given} output(s), the network {wanted}.")
        return self.network, VALUES, False


def method_of(black_box, response_method):
    """The method to query: that of the probabilities of a classifier, also of an ONNX file with labels beside them."""
    if response_method == "auto" and is_onnx_model(black_box):
        return "predict_proba"
    return resolve_response(black_box, response_method)


def _refuse_swapped(black_box, network):
    """TypeError if only the first argument can be the known network."""
    if callable(network) and not (_shows_weights(network) or hasattr(network, "predict")) and _shows_weights(black_box):
        raise TypeError(
            f"the network must have known weights, got {type(network).__name__}, while the black box, "
            f"{type(black_box).__name__}, has them: the two arguments are swapped. Call verify_same(black_box, "
            "network, X)."
        )


def _shows_weights(model):
    fitted = hasattr(model, "network_") or hasattr(model, "coefs_")
    return fitted or is_torch_module(model) or isinstance(model, FeedforwardNetwork) or is_onnx_model(model)


def _are_logits(Y, Z):
    """Whether outputs Y are the logits Z (n, m), at least roughly."""
    return Y.shape == Z.shape and np.abs(Y - Z).mean() < _AS_LOGITS * np.abs(Z - Z.mean(axis=0)).mean()


def _logits_of(network):
    """The network before its softmax or its sigmoid; None if it ends otherwise."""
    if network.output_activation == "identity":
        return network
    if network.output_activation != "sigmoid" or network.n_outputs > 1:
        return None
    hidden = network.activations[0] if network.n_layers > 1 else "identity"
    return FeedforwardNetwork(network.weights, network.biases, hidden, "identity")


def _only_single(black_box, network):
    """Whether the weights of one of them may be rounded to float32 where those of the other are not."""
    known = in_single([*network.weights, *network.biases])
    if is_torch_module(black_box):
        arrays = [p.detach().double().cpu().numpy() for p in black_box.parameters()]
    elif isinstance(black_box, FeedforwardNetwork):
        arrays = [*black_box.weights, *black_box.biases]
    else:  # of whose weights nothing is known
        return known
    return known != in_single(arrays)


def in_single(arrays):
    """Whether all numbers are those of float32."""
    with np.errstate(over="ignore"):
        return all(np.array_equal(np.float32(a), a) for a in arrays)
