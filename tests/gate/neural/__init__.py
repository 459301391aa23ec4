"""Tests of the neural reader of the gate."""
