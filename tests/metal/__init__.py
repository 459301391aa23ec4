"""Tests of metal/ on Linux: the device that runs it on fibers, a lint, and a mutation test."""
