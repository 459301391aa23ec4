"""Tests of hybrid runs: a scripted planner on loopback, an obedient worker, and what leaves."""
