"""Logits against the oracles: transformers and mlx-lm."""
