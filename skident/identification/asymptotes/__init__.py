"""Far out, units that grow linearly: every unit bends alone, and its profile tells its length and shift.

From the top: `network` (the whole search), bends (where answers bend along a line), unit_profile (one unit's bend),
far_answers (rounding and gradients where answers are linear).
"""
