"""What the site makes of the code: API pages, lists of messages, the reproduction page, formulas, pictures."""
