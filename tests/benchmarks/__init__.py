"""Tests of the benchmarks' own arithmetic, parsers and protocols; no figure is judged here."""
