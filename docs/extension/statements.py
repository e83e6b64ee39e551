"""Algorithms, statements, figures and tables of the five papers, each with the public name that computes it.

A line is "labels | public name | test | example"; without a fourth part, the example is that of the name's docstring. A
statement that nothing computes has "none: why" as its name.
"""

import re
from dataclasses import dataclass

NONE = "none: "


@dataclass(frozen=True)
class Statement:
    """A row of the table; `test` is "file::function", `example` a path or "" for the docstring of the name."""

    labels: str
    name: str
    test: str = ""
    example: str = ""

    @property
    def computed(self):
        """Whether a public name computes it."""
        return not self.name.startswith(NONE)


_FIEDLER = """
Definition 1 | network.FeedforwardNetwork | tests/network/test_feedforward.py::test_call_against_unit_by_unit
Proposition 2 | network.FeedforwardNetwork.hessian | tests/network/test_feedforward.py::test_hessian_against_proposition_2_and_differences
Entangled weights, eq. (8) | network.FeedforwardNetwork.entangled_weights | tests/network/test_feedforward.py::test_entangled_weights_are_the_jacobians_of_pre_activations
Proposition 3, Remark 1 | identification.NetworkCompletion.mixings_ | tests/identification/hessians/test_completion_problem.py::test_mixings_of_a_network_are_those_of_its_entangled_weights
Algorithm 1 | identification.EntangledWeightExtractor.subspace_ | tests/identification/hessians/test_subspace.py::test_subspace_of_the_entangled_weights
Algorithm 2 | linalg.find_rank_one | tests/linalg/test_rank_one.py::test_steps_of_algorithm_2
Algorithm 3 | identification.EntangledWeightExtractor.components_ | tests/identification/hessians/test_rank_one_weights.py::test_clusters_of_directions
Algorithm 4 | identification.EntangledWeightExtractor.layer_assignment_ | tests/identification/hessians/test_layer_assignment.py::test_algorithm_4
Algorithm 5 | identification.EntangledWeightExtractor.layer_assignment_ | tests/identification/hessians/test_layer_assignment.py::test_algorithm_5
Completion, eq. (18) | identification.NetworkCompletion | tests/identification/hessians/test_completion_problem.py::test_residual_is_equation_18
Theorem 4, Proposition 5 (the error that they bound) | metrics.subspace_distance | tests/metrics/test_metrics.py::test_subspace_distance_reference
Lemma 6, Lemma 7, Lemma 8 | none: steps of the proof of Theorem 4, with constants that are not given; `metrics.subspace_distance` measures the error
Theorem 9 | linalg.subspace_power_iteration | tests/linalg/test_rank_one.py::test_iteration_never_lowers_the_objective_with_a_small_step
Lemma 11, Lemma 12 (the objective) | linalg.find_rank_one | tests/linalg/test_rank_one.py::test_projection_norms_against_matrices
Theorem 10, Theorem 14, Corollary 1, Theorem 15, Proposition 16 (the local maximizers that they are about) | linalg.find_rank_one | tests/linalg/test_rank_one.py::test_noise_moves_vectors_but_makes_none
Lemma 13, Lemma 17, Lemma 18 | none: steps of proofs, and a counterexample that exists; `metrics.false_positive_rate` measures spurious maximizers
Figure 1 | none: a drawing
Figure 2 | datasets.make_pyramidal_network | tests/datasets/test_datasets.py::test_pyramidal_is_make_network_of_its_widths
Table 1 | none: settings, named beside each run of ours
Figure 3, Figure 7 | metrics.subspace_distance | tests/metrics/test_metrics.py::test_subspace_distance_reference | benchmarks/bench_paper_figures.py
Figure 4, Figure 6 | metrics.recovery_rate | tests/metrics/test_metrics.py::test_rates_reference | benchmarks/bench_paper_figures.py
Figure 5 | metrics.false_positive_rate | tests/metrics/test_metrics.py::test_rates_reference | benchmarks/bench_paper_figures.py
Table 2 | metrics.assignment_error | tests/metrics/test_metrics.py::test_assignment_error_reference | benchmarks/bench_entangled_weights.py
Figure 8 | identification.NetworkCompletion | tests/identification/test_completion.py::test_descent_lowers_the_loss | benchmarks/bench_paper_figures.py
Figure 9 | identification.NetworkIdentifier | tests/identification/test_completion.py::test_pipeline_is_exact_where_extraction_is | benchmarks/bench_entangled_weights.py
"""

_AWASTHI = """
Definition A.1, Definition A.2, Fact A.3 | linalg.hermite_tensors | tests/linalg/test_hermite_expansions.py::test_features_against_the_definition
Claim A.4, Fact 4.7 | none: ranks of Khatri-Rao products, which the number of units per order follows from; `samples.units_from_tensors` refuses more
Theorem A.5 | linalg.jennrich | tests/linalg/test_rank_one.py::test_error_goes_with_the_noise
Lemma 3.5 | samples.population_tensors | tests/samples/test_tensor_fit.py::test_population_tensors_are_means_of_hermite_tensors
Proposition B.1 | samples.population_tensors | tests/samples/paper/test_statements.py::test_the_risk_is_the_distance_of_the_tensors
Algorithm 1, Theorem 3.1 | samples.units_from_tensors | tests/samples/paper/test_decomposition.py::test_full_rank_exact
Algorithm 2, Lemma 4.5, Claim 4.6 | samples.RecoveredUnits.b | tests/samples/paper/test_decomposition.py::test_scalars_from_exact_tensors | skident.samples.units_from_tensors
Algorithm 3 | samples.RecoveredUnits.margins | tests/samples/paper/test_decomposition.py::test_signs_are_decided_in_the_middle | skident.samples.units_from_tensors
Algorithm 4, Theorem 3.2, Theorem D.1 | samples.units_from_tensors | tests/samples/paper/test_decomposition.py::test_literal_algorithm_exact
Algorithm 5, Lemma D.12 | samples.TensorReLURegressor.method | tests/samples/test_ridges.py::test_regression_on_the_true_units_is_exact
Algorithm 6 | samples.units_from_tensors | tests/samples/paper/test_decomposition.py::test_literal_signs_are_right_without_noise
Corollary 3.3 | samples.units_from_tensors | tests/samples/paper/test_decomposition.py::test_higher_orders_exact
Lemma 4.3 | linalg.hermite_tensors | tests/samples/paper/test_statements.py::test_neighboring_hermite_polynomials_are_not_both_small
Claim 4.4 | linalg.jennrich | tests/linalg/test_rank_one.py::test_symmetric_modes
Claim 4.8 | samples.TensorReLURegressor.signs_margin_ | tests/samples/test_ridge_sides.py::test_signs_of_units_whose_weights_cancel
Claim D.2 to Lemma D.11, Lemma D.13 | none: robust versions of the statements above, with constants that are not given; `benchmarks/bench_relu.py --part noise` measures the errors
Claim D.14 | samples.TensorReLURegressor.to_network | tests/samples/test_regressor.py::test_one_network_for_all
"""

_SOLTANOLKOTABI = """
Theorem 2.1 (no spurious minima, saddles) | landscape.landscape_certificate | tests/landscape/test_certify.py::test_descent_ends_at_certified_optima
Theorem 2.1 (loss zero) | landscape.QuadraticNetRegressor | tests/landscape/test_regressor.py::test_random_labels_are_fitted_exactly
Theorem 2.2 | landscape.LandscapeCertificate.theorem_bound | tests/landscape/test_certify.py::test_both_bounds_of_approximate_minima_hold_and_the_deterministic_one_is_tighter | benchmarks/bench_landscape.py
Assumption 2.3, Example 2.4 | network.ACTIVATIONS | tests/test_errata.py::test_erf_of_example_2_4_has_the_limit_sqrt_2 | skident.network.FeedforwardNetwork
Theorem 2.5, Remark 2.6 | landscape.descent_rate | tests/landscape/test_descent_rate.py::test_the_rate_is_that_of_the_jacobian
Lemma 5.1 to Lemma 5.7 | none: identities and concentration inequalities of the proofs
Lemma 6.1 | landscape.LandscapeCertificate.residual_norm | tests/landscape/test_certify.py::test_at_rank_deficient_saddles_the_explicit_curvature_is_the_smallest_eigenvalue | skident.landscape.landscape_certificate
Proposition 7.1, Proposition 7.2, Proposition 7.4, Corollary 7.5 (the singular value that they bound) | landscape.descent_rate | tests/landscape/test_descent_rate.py::test_the_rate_is_that_of_the_jacobian
Lemma 7.6 to Lemma 7.14, Proposition 7.8, Proposition 7.9, Theorem B.1, Lemma A.1 to Lemma F.2 | none: steps of the proof of Theorem 2.5, with constants that are not given; `landscape.descent_rate` computes the rate
Figure 1 | network.ACTIVATIONS | tests/test_errata.py::test_erf_of_example_2_4_has_the_limit_sqrt_2 | benchmarks/bench_paper_figures.py
Figure 2, Figure 3 | landscape.phase_transition | tests/inspection/test_displays.py::test_phase_transition_repeats_and_counts | benchmarks/bench_landscape.py
Figure 4 | datasets.make_planted_shallow | tests/datasets/test_datasets.py::test_planted_shallow_labels_and_noise | benchmarks/bench_landscape.py
"""

_BANTZIS = """
Definition 2.1 | saddle.SaddleEscapeAnalyzer.escape_direction_ | tests/saddle/test_analyzer.py::test_the_direction_is_a_critical_point_away_from_activation_boundaries
Proposition 2.2, Proposition A.2 | saddle.SaddleEscapeAnalyzer.predict_escape_time | tests/saddle/test_analyzer.py::test_escape_times | benchmarks/bench_saddle.py
Proposition A.1 | saddle.SaddleEscapeAnalyzer.escape_time_from | tests/saddle/test_analyzer.py::test_escape_time_is_that_of_the_simulated_flow | benchmarks/bench_saddle.py
Theorem 3.1, Theorem A.7 | saddle.SaddleEscapeAnalyzer.theorem_bound_ | tests/saddle/test_analyzer.py::test_the_theorem_says_nothing_on_most_data
Proposition 3.2, Proposition A.3 | saddle.SaddleEscapeAnalyzer.extend | tests/saddle/test_analyzer.py::test_collapse_never_loses_speed_and_prolonging_keeps_it
Proposition 3.3, Proposition A.5 | saddle.SaddleEscapeAnalyzer.near_rank_one_bound_ | tests/saddle/test_analyzer.py::test_bounds_of_propositions_3_3_and_3_4
Proposition 3.4, Proposition A.4 | saddle.SaddleEscapeAnalyzer.layer_count_bound_ | tests/saddle/test_analyzer.py::test_bounds_of_propositions_3_3_and_3_4
Ratios of Theorem 3.1 and Propositions 3.3, 3.4 | saddle.SaddleEscapeAnalyzer.rank_ratio_ | tests/saddle/test_analyzer.py::test_digits
Lemma A.6 | none: the Perron-Frobenius theorem; `near_rank_one_bound_` uses it
Example 1 | datasets.make_alternating_circle | tests/saddle/test_analyzer.py::test_example_one
Figure 1, Figure 3, Figure 4 | saddle.detect_escapes | tests/saddle/test_training.py::test_the_first_plateau_on_digits | benchmarks/bench_saddle.py
Figure 2, Figure 6 | saddle.SaddleEscapeAnalyzer.restart_speeds_ | tests/saddle/test_analyzer.py::test_rank_two_beats_rank_one | benchmarks/bench_saddle.py
Figure 5, eq. (6) | saddle.fastest_planar_escape | tests/saddle/test_planar_escape.py::test_speeds_on_the_circle | benchmarks/bench_paper_figures.py
"""

_ALLEN_ZHU = """
Target network, eq. (1.1) | datasets.make_hierarchical_target | tests/hierarchical/test_backward_correction.py::test_conditioning_and_the_features_by_hand
Algorithm 1 | hierarchical.HierarchicalQuadraticNet.solver | tests/hierarchical/test_algorithm1.py::test_algorithm_1 | benchmarks/bench_hierarchical.py
Thresholds, eq. (4.1) | hierarchical.HierarchicalQuadraticNet.stage_history_ | tests/hierarchical/test_algorithm1.py::test_thresholds_are_those_of_equation_4_1
INITIAL-DISTILL | hierarchical.HierarchicalQuadraticNet.spectrum_ | tests/hierarchical/test_algorithm1.py::test_distillation_finds_the_rank
Theorem 1, Theorem 1', Corollary B.1, Corollary B.2 | hierarchical.HierarchicalQuadraticNet | tests/hierarchical/test_estimators.py::test_recovers_the_target_to_rounding
Signed sums, footnote 7 | hierarchical.HierarchicalQuadraticNet.layer_signs_ | tests/hierarchical/test_signed_sums.py::test_every_solver_on_a_signed_sum
Theorem 2, Corollary F.3, Corollary F.4 | metrics.feature_recovery_error | tests/hierarchical/test_backward_correction.py::test_feature_error_sees_rotations_and_units
Theorem 3, Theorem 3' | hierarchical.HierarchicalQuadraticNet | tests/hierarchical/test_estimators.py::test_noise_is_not_fitted
Theorem 4, Proposition H.1 | hierarchical.HierarchicalQuadraticNetClassifier | tests/hierarchical/test_algorithm1.py::test_algorithm_1_on_signs
Proposition 5.1 | datasets.make_hierarchical_target | tests/hierarchical/test_backward_correction.py::test_mixtures_differ_between_components_and_signs_are_balanced
Theorem I.1, Theorem I.3, Theorem I.6, Theorem I.7 | none: lower bounds for every kernel, feature map and shallow network; `tests/hierarchical/test_estimators.py::test_where_kernels_fail` illustrates them
Proposition D.2, Proposition D.7, Proposition D.8, Theorem G.10, Theorem G.11, Lemma C.5 to Fact J.11 | none: steps of the proofs of Theorems 1 to 4
Figure 1, Figure 2, Figure 4, Figure 11 | none: pictures of features of convolutional networks on CIFAR, which are no part of the package
Figure 3 | hierarchical.BackwardCorrection | tests/hierarchical/test_estimators.py::test_the_protocol_of_classifiers | benchmarks/bench_paper_figures.py
Figure 5, Figure 7, Figure 8 | none: drawings
Figure 6, Figure 9 | hierarchical.backward_feature_correction | tests/hierarchical/test_estimators.py::test_single_layers_and_the_protocol | benchmarks/bench_hierarchical.py
Figure 10 | metrics.neuron_correlation | tests/hierarchical/test_backward_correction.py::test_neuron_correlation | benchmarks/bench_paper_figures.py
Figure 12 | hierarchical.HierarchicalQuadraticNetClassifier | tests/hierarchical/test_estimators.py::test_curvature_and_classes_by_lbfgs | benchmarks/bench_hierarchical.py
Figure 13, Figure 14 | hierarchical.backward_feature_correction | tests/hierarchical/test_estimators.py::test_the_protocol_of_classifiers | benchmarks/bench_paper_figures.py
"""


def _parsed(lines):
    return [Statement(*(part.strip() for part in line.split(" | "))) for line in lines.strip().splitlines()]


STATEMENTS = {
    "Fiedler, Fornasier, Klock, Rauchensteiner": _parsed(_FIEDLER),
    "Awasthi, Tang, Vijayaraghavan": _parsed(_AWASTHI),
    "Soltanolkotabi, Javanmard, Lee": _parsed(_SOLTANOLKOTABI),
    "Bantzis, Simon, Jacot": _parsed(_BANTZIS),
    "Allen-Zhu, Li": _parsed(_ALLEN_ZHU),
}


def labels(rows):
    """Numbered labels of rows, without what follows in parentheses."""
    return {label.strip() for row in rows for label in re.sub(r"\(.*?\)", "", row.labels).split(",")}


def table():
    """Lines of the table of all papers."""
    lines = ["| paper | statement | public name | example | test |", "|---|---|---|---|---|"]
    for paper, rows in STATEMENTS.items():
        for row in rows:
            if not row.computed:
                lines.append(f"| {paper} | {row.labels} | not computed: {row.name.removeprefix(NONE)} | | |")
                continue
            example = f"`{row.example}`" if row.example else "docstring"
            lines.append(f"| {paper} | {row.labels} | `skident.{row.name}` | {example} | `{row.test}` |")
    return lines
