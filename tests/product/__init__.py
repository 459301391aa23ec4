"""Tests of the Python around the engine, on a toy engine and on the model in the package."""
