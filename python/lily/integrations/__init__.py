"""Lily inside other frameworks: a module for each, which needs it; none is imported here."""
