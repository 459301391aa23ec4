"""Tests of Lily inside other frameworks."""
