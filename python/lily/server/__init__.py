"""The HTTP server: OpenAI's shapes, and others, over one engine.

``core`` runs jobs and knows no wire shape; ``host`` owns the model in memory; ``guard``, ``wire``,
``sse`` and ``errors`` serve every API; each API is a module with a ``routes`` function, and ``app``
lists them. Nothing here is imported by ``import lily``: it needs the extra ``lily[server]``.
"""
