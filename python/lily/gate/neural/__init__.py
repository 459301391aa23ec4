"""The gate's neural reader: names, places and other private spans, and what a text is about.

`Reader` puts the parts together: tokens and windows, the native encoder, decoding, mentions, the
topics of the document, and whether the text is in a language that the model has learned at all.
It knows no rule and no policy, and opens no socket.
"""

from lily.gate.neural.reader import Reader, Reading

__all__ = ["Reader", "Reading"]
