"""Tests of the HTTP server: real clients and raw sockets against running servers."""
