"""Constants that several stages of identification share, each with unit and reason."""

from __future__ import annotations

# Share of a unit's predicted points that outputs confirm: units behind it hide some where they are inactive.
APART = 1e-3  # sine or distance from which two directions or points are not one
CANDIDATES = 30  # points among which the one farthest from activation boundaries is chosen
CERTAIN = 1e-3  # distance of the size of a sign from 1 up to which it is certain
CHECKED = 500  # further queries near the center that a network has to explain
CHECK_DISTANCE = 30.0  # along a hyperplane, in units of one over the weight's norm: disturbs any other unit nearby
CLEARLY = 100.0  # ratio of errors above which other signs are excluded
COARSE = 1e-5  # relative error of outputs from which differences and lines lose too much
COMPARED_TO = 30.0  # standard deviations up to which outputs are compared
CUT = 25.0  # squared residual that costs no more
DECOMPOSITIONS = 20000  # of small matrices at a time (memory)
DETECTION_TOL = 100.0  # errors of the outputs by which a boundary must move them to be detected
DIRECTIONS = 64  # in which outputs far out are compared
DIRECTION_TOL = 0.1  # error of a direction from which a boundary of a line says nothing about its unit
DOUBLE_COSINE = 0.995  # of hyperplanes that may be one: 0.1 rad
DOUBLE_FREEDOM = 4.0  # decrease of the cost per parameter that a redundant unit may bring
EQUAL_JUMP = 1e-8  # one minus the cosine of jumps of one unit with equally active deeper units
EXPLAINED = 1e-5  # error of an output over its deviation that counts as explained: that of units which are accepted
EXPLAINED_DISTANCE = 1e-7  # of a boundary point from a surface that explains it, relative to 1 + |x|
EXPLAINED_ERRORS = 300.0  # `EXPLAINED` in errors of the output; they are amplified by the fit
FARTHEST = 1e5  # standard deviations of the farthest inputs: weights of 1e-3 saturate there
FAR_REACH = 10.0  # half length of lines over the distance: they miss 6 % of hyperplanes, float32 rounding stays small
FAR_UNSHARED = 0.4  # share of boundaries that no other line meets, of more layers: small units are met now and then
FAR_LEFT = -1e3  # pre-activation at which an activation has reached its left limit
FAR_RADII = (
    10.0,
    1.0,
    30.0,
    3.0,
)  # standard deviations of random points: far out, biases matter less and patterns vary
FEWEST_UNITS = 2  # of a layer that are left if others are removed
# Below it, fits of several hidden layers from vertices end in local minima (tuned on identification/grid).
FEW_OUTPUTS = 3
INDEPENDENT_NORMALS = 1e-8  # singular value over the largest of gradients and normals that are independent
INPUT_REACH = 2.0  # standard deviations along every input, to either side
INPUT_ROUNDING = 1e-7  # of a position over its distance: inputs are float32 numbers
INSIDE = 1e-5  # relative part of a normal outside of the span of the gradients: rounding of normals
LABEL_OFFSET = 1e-8  # of both labels from the boundary, relative to 1 + |x|
LAST_SHARE = 0.6  # of explained outputs above which a layer is the last hidden one
LEAST_ABSOLUTE = 10  # reweightings of a linear fit
LEAST_FLOOR = 1e-12  # of residuals whose median is 0
LEAST_GAIN = 0.1  # share of the wrong outputs that a unit must explain
LEAST_SHARE = 0.5  # of its points that a unit must explain
LINES_AT_A_TIME = 4000  # against labels (memory)
LINES_PER_PARAMETER = 2  # further lines, since more units have smaller facets
LINE_POINTS = 33  # per line: twice the coefficients of degree 8
LINE_REACH = 4.0  # half length of lines, in units of sqrt(D)
MANY_ROUNDINGS = 64.0  # eps of the largest output by which outputs may be off
MAX_DOUBLES = 4  # redundant units or pairs of them that are tried (budget)
MAX_LINES = 16  # budget; almost every line crosses every hyperplane
MIN_BEND = 5e-6  # deviation from the plane before the bend, over that distance, below which the plane goes on
MIN_OUTPUTS = 3  # from which gradients have more entries than there are directions
MORE_POINTS = 20  # boundary points of the last fit beyond its unknowns
NEARLY_RIGHT = 1e-2  # share of wrong outputs below which few other methods and repairs are tried
NEAR_HYPERPLANE = 1e-6  # distance from a known one, relative to 1 + |x|, within which a bend is that unit's
NEAR_OFFSET = 1e-9  # of both labels from a boundary that is known to rounding, relative to 1 + |x|
NEAR_RADII = (0.5, 1.0, 2.0)  # standard deviations of the origins of lines, or units of a probe's `spread`
NEAR_SHARE = 0.3  # distance from a point of a unit, over that from the center
# Singular value over the largest, below which it is rounding of normals and linear systems of them.
NORMAL_RANK_TOL = 1e-7
NORMAL_WEIGHT = 1e-4  # of normals beside positions: their errors are larger
NORM_SPREAD = 0.5  # standard deviation of the logarithm of norms around those of the other units
NO_GRADIENT = 1e-9  # norm of a gradient that is rounding: the unit is constant in the region
N_CHOICES = 4  # signs compared by their polished networks
N_FIRST = 8  # points of a hyperplane queried first; a facet of a deeper unit has hardly any of them
OUTPUTS_PER_UNKNOWN = 4.0  # of a linear fit
POINTS_PER_UNIT = 4.5  # scalar equations per unit, which has three unknowns
POLISHED = 3000  # parameters up to which polishing is quick; larger networks only if they explain too little
POSITION_TOL = 1e-6  # distance of a critical point from a predicted one, in units of the line: chance is 1e-6 per line
PROBED = 20  # samples of X that set the scale of the outputs (budget)
QUANTILE = 0.8  # of the residuals, that gives their scale: decimals have many residuals near 0
RADII = (0.5, 1.0, 3.0)  # standard deviations of random points
RANK_TOL = 1e-9  # singular value or pivot over the largest, below which it is rounding of fitted weights
RCOND = 1e-12  # of least squares: rounding
RESIDUAL_FLOOR = 1e-3  # residual over the median below which residuals weigh no more
REWEIGHTINGS = 20  # of a fit of outputs of which some belong to something else
SAME = 1e-9  # relative difference of two results that is rounding
SAME_NORMAL = 1e-4  # one minus the cosine of the normals of one hyperplane
SAME_PLANE = 1e-3  # distance of hyperplanes that are one: errors of a few are ten times as large
SEARCH_SHARE = 0.75  # share of max_seconds for random starts (budget); the rest is for the polish
SECOND_DIFFERENCE = 6.0**0.5  # root of 1 + 4 + 1: standard deviation of a second difference over that of an output
SETTLED = 1e-4  # median residual over the explained one that ends reweighting
SHORTER = 0.3  # factor of a step after an attempt that left the readable range or crossed a unit
SIGNIFICANT = 6.0  # standard errors of an outgoing weight below which a unit is redundant: 1e-9 by chance
SPARE = 8  # equations beyond the unknowns
SPREAD = 0.3  # of points around a known one, over its distance
SPREADS = (1.0, 2.0)  # standard deviations of the samples: farther out, more units saturate and fits fail
STRAIGHT = 4.0  # standard deviations of a line's second difference, or of its residuals: chance is below 1e-9
STRAIGHT_TOL = 4.0  # errors of the outputs in a second difference of a linear piece, which has at most 4 of them
SVD_OPERATIONS = 20.0  # of a singular value decomposition, over n m^2 (Golub and Van Loan, section 8.6)
TARGETS = (0.5, 6.0)  # standard deviations of the points that paths head for, log-uniform
TIGHT_RANK_TOL = 1e-12  # singular value over the largest, below which it is rounding of features
COST_MARGIN = 1.5  # queries that may be needed over those of a design
TIME_SHARE = 0.5  # of `max_seconds` for one method (budget); the rest is for the polish and other methods
TOLERATED = 0.5  # share of the residuals that counts as errors of the outputs
TRIES = 3  # of a random step that rarely fails (budget)
VERY_FAR = 1e6  # standard deviations: logits of ReLU networks are beyond 40 there, units 1e-6 of a radian wide
WEAK_RIDGE = 1e-9  # of equations scaled to unit diagonal, from noisy outputs: directions that none of them determines
WHOLE_SHARE = 0.97  # of explained outputs above which hardly any unit is missing
WIDENINGS = 2  # times that lines are scanned farther out if the detected units explain nothing
WITHIN_RADII = (0.5, 3.0)  # standard deviations of random points within a hyperplane
WRONG = 12.0  # standard deviations of an output's error above which it is not explained
REWEIGHTINGS = 24  # of least absolute deviations (budget)
AT_ONCE = 1000  # points of a query at a time (memory): 6 MB with 784 inputs
FARTHEST_HALF = 1e3  # `FARTHEST` for float16, which ends at 65,504
WINDOW_ERRORS = 300.0  # half width of a window in errors of the normal
HELD_OUT_PER_PARAMETER = 12  # held-out samples per parameter and output, at least
READOUT_RADII = (0.5, 1.0, 2.0, 3.0)  # standard deviations of samples of the readout
TENSOR_POINTS = 8  # points beyond the width of the second layer, at which the tensor has full rank
SAME_JUMP = 1e-7  # one minus the cosine of jumps of one unit, also next to other boundaries
BRACKETS = (1.0, 4.0, 16.0)  # half widths of the intervals that are bisected, in steps
DEVIATIONS_OF_ERROR = 3.0  # standard deviations that bound an output's error: false alarm rate 0.3 %
SAME_PART = 1e-5  # relative difference of two estimates of one weight, or of two parts of one unit
