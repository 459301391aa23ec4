"""Tests of ``lily doctor``: what it finds on a machine with a fault, and that it always ends."""
