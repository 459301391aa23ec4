"""Tests of ``lily bench --vs mlx-lm``: refusals, order, what ends a run, and the report."""
