"""Constants that several packages share: rounding, statistics and sizes of arrays, each with unit and reason."""

from __future__ import annotations

import math
import sys

EPS = sys.float_info.epsilon  # spacing of float64 numbers at 1
TINY = sys.float_info.min  # instead of zero, where something is divided by: quotients of rounding stay finite
BLOCK_ENTRIES = 2**22  # of arrays that are made at a time: 32 MB
CAUCHY = 6.0  # standard deviations from which a residual counts for less: white ones lose 2 % of their information
CHUNK_COPIES = 4  # arrays of a chunk that exist at a time (memory)
CHUNK_ENTRIES = 4_000_000  # of a Jacobian in memory at once: 32 MB
COARSE_FTOL = 1e-2  # relative gain of the last steps of a fit that is only a start
COLLINEAR = 1e-10  # eigenvalue of the correlation matrix below which a direction is constant
CONSTANT = 1e-13  # standard deviation relative to the mean: a few hundred roundings (2^-53), mostly none
CONSTANT_TOL = 1e-12  # relative difference of outputs that counts as none: 4500 eps
ESCAPE_DROP = 0.02  # fraction of the loss at the origin whose decrease is an escape, as for `NormAdaptedStep`
EXACT_RANK_TOL = 1e-13  # singular value over the largest, below which it is rounding: 500 eps
EXACT_RESIDUAL = 1e-15  # relative, at which a fit ends: 5 eps
FAR_SATURATED = 50.0  # pre-activations of saturated units, over the rate: exp(-50) is below rounding
FEWEST_COMPARED = 10  # samples below which no models are compared and none are held out
FEWEST_FOLDED = 9  # samples for 3-fold cross-validation: three per fold
FEW_ROUNDS = 3  # of a step that is repeated while it gains: more hardly help (budget)
FEW_STEPS = 8  # of an iteration that converges in fewer (budget)
FINE_FTOL = 1e-4  # relative gain of a step that ends fits from far
FINE_RANK_TOL = 1e-10  # singular value or pivot over the largest, below which it is rounding of located units
FTOL = 1e-3  # relative gain of the last steps of a fit
GRADIENT_CLIP = 5.0  # norm; gradients of degree 2^L overflow on outliers
GROWTH_DAMPING = 1e-6  # of the Gauss-Newton matrix where the gains of candidates are predicted
GROWTH_STEPS = 20  # of the fit after growth
INPUT_NOISE = 0.5  # level tried for classifiers, in standard deviations of the inputs
LEAST_DIVISOR = 1e-300  # instead of zero: quotients and logarithms stay finite
LONGEST_MESSAGE = 1000  # letters of what onnx or onnxruntime say, which repeats names of the model
MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
MANY_ROUNDS = 8  # of a step that gains slowly (budget)
MATRIX_ENTRIES = 2**21  # of temporary arrays, 16 MB
MAX_CONDITION = 1e6  # of first-layer weights: inputs for given pre-activations lose six digits
MAX_STARTS = 2  # (budget); starts are alike, since most is explained by the direct part
MIN_DAMPING = 1e-10  # relative to the diagonal: exact fits converge quadratically, redundant units stay bounded
MIN_GAP = 1e-12  # of 1 - leverage: a sample that the fit interpolates has no leave-one-out error
MOST_WORK = 2e9  # multiplications spent on candidates of an audit
NOISE_FREE = 1e-10  # error relative to the variance of y, below which data are free of noise
NORM_FLOOR = 1e-14  # of the largest column norm, 50 eps: columns below it are scaled by the largest one
NO_EFFECT = 1e-9  # relative effect, or singular value of effects, that is rounding
NOISELESS = 1e-9  # relative residual below which outputs have no detectable noise
NULL_EIGENVALUE = 1e-13  # of a Gram matrix, relative to the largest: about 500 eps
N_FOLDS = 3  # networks that determine the number of epochs, each without a third of the samples (budget)
OUTLIER = 8.0  # standard deviations that no residual of a right network reaches in a million outputs
OUTPUTS_PER_PARAMETER = 2.0  # that an overdetermined fit needs
PATIENCE = 2  # rounds in a row without progress that end a search (budget)
PENALTY_STEPS = 40  # of Levenberg-Marquardt per penalty (budget)
PREDICTED_ROWS = 2**16  # rows per block of a prediction (memory)
PROGRESS = 0.5  # factor by which a restart or Newton step must lower the residual or slope
RANGE_MARGIN = 0.25  # of the training range, added at either end: 20,000 new samples exceed it by a quarter
REMOVAL_DAMPING = 1e-7  # where the losses of removals are predicted: roots of eps keep the inverse accurate
REMOVAL_STEPS = 8  # of a fit without a unit (budget)
RIDGE = 1e-12  # of normal equations scaled to unit diagonal: scales of units, and units that no row determines
RIDGE_OF_PRODUCTS = 1e-10  # of a Gauss-Newton matrix relative to its diagonal: rounding of products is 1e-13
ROOT_RANK_TOL = 1e-8  # singular value or pivot over the largest, below which it is rounding: root of eps
ROUNDINGS = 16.0  # eps of the largest number by which a right result may be off
ROUNDS = 4  # of a step that is repeated while it gains: more hardly help (budget)
SAME_SINGLE = 1e-6  # relative difference of two numbers that float32 may have rounded differently
SCORE_ERRORS = 2.0  # standard errors by which a score has to be better: false alarm rate of 2 %
STEPS = 30  # of a search or fit from far (budget)
UNIFORM = 12.0 ** (-0.5)  # standard deviation of an error uniform over one spacing
WORSE_THAN_LINEAR = 0.03  # R^2 or accuracy below that of a linear model from which a warning is due
REPEATED_ROWS = 2**17  # rows up to which repeated ones are searched for (budget)
ROWS_PER_PARAMETER = 64  # of more rows, a part is enough for the Gauss-Newton matrix
ROOT_2PI = (2.0 * math.pi) ** 0.5  # normalization of the standard normal density
MAX_WEIGHT = 2.0  # outgoing weight of a new unit, relative to the largest one of its layer
SUM_TOL = 1e-4  # rounding of the sum of a thousand probabilities in single precision
MOST_FLIPS = 256  # combinations of signs of units that explain a linear part and are listed (budget)
WIDE_OUTPUTS = 5.0  # outputs per parameter of a wide fit: with 4 more of them end in local minima
SAME_MINIMUM = 1e-3  # relative difference of the losses of two fits that ended in one minimum
LARGEST_ORDER = 1000  # of an eigendecomposition, which takes a second (budget)
