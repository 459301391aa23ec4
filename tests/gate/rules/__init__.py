"""The recognisers: positives, negatives, adversarial forms, and their cost."""
