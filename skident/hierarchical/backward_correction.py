"""The protocol that measures backward feature correction: layers trained alone, held fixed, and trained jointly."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import train_test_split

from skident.metrics import feature_recovery_error, neuron_correlation


@dataclass
class BackwardCorrection:
    """Test errors of networks whose layers were trained alone, held fixed, or trained jointly.

    Attributes
    ----------
    rows : list of dict
        One per trained network, with ``protocol`` ("only", "fixed", "layerwise" or "all"), ``layer`` (l), ``fixed``
        (the highest fixed layer, 1 for none), ``error`` (relative squared error or error rate on the test samples),
        ``score``, ``feature_errors`` (by layer, if the target is given), ``correlation_start`` and
        ``correlation_after``.
    n_layers : int
        L.
    classifies : bool

    Notes
    -----
    Correlations are mean cosines of the neurons of layers <= l in "only": with their initial values, and with those in
    "all"; None for other protocols. Starts are random, except for sums of squares with enough samples for
    layer-by-layer regression.

    Examples
    --------
    >>> from skident.hierarchical import BackwardCorrection
    >>> row = {
    ...     "protocol": "all",
    ...     "layer": 2,
    ...     "fixed": 1,
    ...     "error": 0.25,
    ...     "score": 0.75,
    ...     "feature_errors": {},
    ... }
    >>> table = BackwardCorrection([row], n_layers=3, classifies=True)
    >>> print(table.error("all", 2))
    0.25
    """

    rows: list
    n_layers: int
    classifies: bool

    def find(self, protocol, layer, fixed=None):
        """The row of a trained network.

        Parameters
        ----------
        protocol : {"only", "fixed", "layerwise", "all"}
        layer : int
            l.
        fixed : int, default=None
            The highest fixed layer; None returns the first match.

        Returns
        -------
        dict or None
            None if there is no such row.
        """
        wanted = {"protocol": protocol, "layer": layer} | ({} if fixed is None else {"fixed": fixed})
        return next((row for row in self.rows if wanted.items() <= row.items()), None)

    def error(self, protocol, layer, fixed=None):
        """The test error of a trained network.

        Parameters
        ----------
        protocol, layer, fixed
            As for `find`; the row must exist.

        Returns
        -------
        float
            Relative squared error, or error rate.
        """
        return self.find(protocol, layer, fixed)["error"]

    def __str__(self):
        """The table of Figure 9: one row per protocol, one column per layer l."""
        columns = sorted({row["layer"] for row in self.rows})
        lines = ["train only <= l", *[f"fix <= l - {j}, train the rest" for j in range(self.n_layers - 2)]]
        keys = [("only", None), *[("fixed", j) for j in range(self.n_layers - 2)], ("layerwise", None), ("all", None)]
        lines += ["layer by layer up to L", "train all"]
        cells = []
        for protocol, j in keys:
            entries = [self.find(protocol, layer, None if j is None else layer - j) for layer in columns]
            cells.append([f"{row['error']:.1e}" if row else "-" for row in entries])
        for name, label in (("correlation_start", "correlation with start"), ("correlation_after", "... with all")):
            entries = [(self.find("only", layer) or {}).get(name) for layer in columns]
            if any(value is not None for value in entries):
                lines.append(label)
                cells.append(["-" if value is None else f"{value:.3f}" for value in entries])
        width = max(map(len, lines))
        head = " " * width + "".join(f"{f'l = {layer}':>10}" for layer in columns)
        return "\n".join([head, *[f"{a:<{width}}" + "".join(f"{c:>10}" for c in b) for a, b in zip(lines, cells)]])


def backward_feature_correction(estimator, X, y, *, X_test=None, y_test=None, target=None):
    """Measure backward feature correction: the error of lower layers that are not trained jointly with higher ones.

    For each layer ``l < L`` networks are trained that

    - have only the layers up to l ("only");
    - keep the layers up to l - j of that network, ``j = 0, ..., l - 2``, and train the rest ("fixed"): layers l - j + 1
      to l from their current weights, higher ones from new weights;
    - train all layers from there ("all").

    "layerwise" trains the layers one after the other, each with all lower ones fixed.

    Parameters
    ----------
    estimator : HierarchicalQuadraticNet or HierarchicalQuadraticNetClassifier
        Cloned for every fit; at least two widths.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    X_test, y_test : array-like, default=None
        Test samples; None holds out a quarter of X and y.
    target : object with ``features(X, layer)``, default=None
        The true features, as `make_hierarchical_target` gives them; feature errors are measured if it is given.

    Returns
    -------
    BackwardCorrection

    Raises
    ------
    TypeError
        If the estimator cannot train single layers.
    ValueError
        If it has one layer only.

    Notes
    -----
    Cost: ``1 + (L - 2) (L + 5) / 2`` fits. Source: Allen-Zhu, Li (2020), Figure 9 and Appendix A.5. There, "all" starts
    again at random weights that are regularized towards those of "only"; here it starts at those. In the sum form,
    layer l of "only" is determined up to a rotation, which the higher layers fix; correlations with "all" include it.

    Examples
    --------
    >>> from skident import HierarchicalQuadraticNet
    >>> from skident.datasets import make_hierarchical_target
    >>> from skident.hierarchical import backward_feature_correction
    >>> target = make_hierarchical_target(8, (3, 2), random_state=0)
    >>> X = target.sample(1500, random_state=0)
    >>> net = HierarchicalQuadraticNet(widths=(3, 2), readout="sum", random_state=0)
    >>> result = backward_feature_correction(net, X, target(X))
    >>> print(result.error("all", 2) < 1e-4 * result.error("fixed", 2))
    True
    """
    if not hasattr(estimator, "fit_layers"):
        raise TypeError(
            f"estimator must train single layers, as HierarchicalQuadraticNet does by fit_layers; got "
            f"{type(estimator).__name__}."
        )
    L = 1 + len(np.atleast_1d(estimator.widths))
    if L < 3:
        raise ValueError(f"backward correction needs two layers or more, widths are {estimator.widths!r}.")
    X, y = np.asarray(X), np.asarray(y)
    if X_test is None:
        stratify = y if is_classifier(estimator) else None
        X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=stratify)
    if getattr(estimator, "readout", None) == "auto":  # one form for all networks
        estimator = clone(estimator).set_params(readout=clone(estimator).fit(X, y).readout_)
    protocol = _Protocol(estimator, X, y, np.asarray(X_test), np.asarray(y_test), target)
    rows = []
    for layer in range(2, L):
        rows += protocol.rows_of_layer(layer, L)
    net = None
    for layer in range(2, L + 1):
        net = protocol.train(layer, range(2, layer), net)
    rows.append(protocol.row("layerwise", L, L - 1, net))
    return BackwardCorrection(rows, L, is_classifier(estimator))


@dataclass(frozen=True)
class _Protocol:
    """An estimator and the data on which it is trained and tested."""

    estimator: BaseEstimator
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    target: Any

    def train(self, depth, fixed, start):
        """A fitted clone with the layers up to `depth`."""
        return clone(self.estimator).fit_layers(self.X, self.y, depth=depth, fixed=tuple(fixed), start=start)

    def rows_of_layer(self, layer, L):
        """All table rows of one layer l."""
        only = self.train(layer, (), None)
        rows = [self.row("only", layer, 1, only)]
        for j in range(layer - 1):
            highest = layer - j
            rows.append(self.row("fixed", layer, highest, self.train(L, range(2, highest + 1), only)))
        together = self.train(L, (), only)
        rows.append(self.row("all", layer, 1, together))
        rows[0]["correlation_start"] = _correlation(only.initial_layer_weights_, only.layer_weights_)
        rows[0]["correlation_after"] = _correlation(only.layer_weights_, together.layer_weights_)
        return rows

    def row(self, protocol, layer, fixed, net):
        """Errors of a trained network on the test samples."""
        predicted = net.predict(self.X_test)
        if is_classifier(net):
            error = float(np.mean(predicted != self.y_test))
        else:
            error = float(np.mean((predicted - self.y_test) ** 2) / np.mean((self.y_test - self.y_test.mean(0)) ** 2))
        features = {}
        if self.target is not None:
            column = getattr(net, "offset_column", None)  # x_0 is not an input of the target
            inputs = self.X_test if column is None else np.delete(self.X_test, column, axis=1)
            for known in range(2, len(net.widths_) + 2):
                truth = self.target.features(inputs, known)
                features[known] = feature_recovery_error(truth, net.transform(self.X_test, layer=known))
        return {
            "protocol": protocol,
            "layer": layer,
            "fixed": fixed,
            "error": error,
            "score": 1.0 - error,
            "feature_errors": features,
            "correlation_start": None,
            "correlation_after": None,
        }


def _correlation(before, after):
    """Mean cosine between the neurons of the layers that both networks have."""
    stacked = [[np.hstack(list(W[layer].values())) for W in (before, after)] for layer in before]
    return float(np.mean([neuron_correlation(*pair) for pair in stacked]))
