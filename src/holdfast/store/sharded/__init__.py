"""Several stores as one, behind the same contract. See docs/decisions/0010."""
