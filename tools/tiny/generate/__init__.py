"""The synthetic part of lily-tiny's training data: our own text, written for this project.

Every module owns one skill and offers functions `rng -> Doc`; `mix.py` owns the proportions.
Nothing here knows the tokenizer, the model or the chat template.
"""
