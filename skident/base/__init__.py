"""What estimators share: constraints, predictions of identified networks, progress."""
