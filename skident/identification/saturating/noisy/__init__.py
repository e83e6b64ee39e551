"""One hidden layer of saturating units from outputs with large errors: steps on far lines, local fits, a joint fit."""
