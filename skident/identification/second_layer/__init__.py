"""Where some first-layer units are free and all others stand still: the second layer by linear algebra.

The first layer, exactly
    exact_directions (rays inside saturation cells), length_vote (tails at several places), erf_tails.
One patch
    plan (how many units are free, to which order), patch (where it lies), charts and taylor (coefficients in hidden
    coordinates), biases_from_taylor, first_rows (the powers).
All of the second layer
    further_rows (one unit of the first layer after the other), all_units_free (where none has to stand still), curves
    (what is left of every unit), downstream and assembling; second_layer takes these steps.
All of one patch, where few units can be free
    one_patch: opposite_regions, powers_at_centers with local_coordinates and output_powers, curves_of_cells, patch_fit and
    grow_in_cells; what is found is a known_patch.
From a patch on which all is known (known_patch; patch_from_rows)
    walls (points of a cell and across its walls), unit_across_wall (one more unit), known_units, walk (all of them);
    walked (patch and walk).
Where inputs are too few for powers
    growing (the second layer fitted alone, downstream a first one that is known up to shifts).
"""
