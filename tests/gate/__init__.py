"""Tests of the privacy gate; see scripted.py for the detectors that most of them use."""
