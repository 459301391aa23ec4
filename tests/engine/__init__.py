"""Tests of the engine through lily._native: sessions, caches, loading."""
