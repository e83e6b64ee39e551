"""Networks of smooth units behind a table: rows, the search for widths, what the rows do not determine."""
