"""Grouped GEMM and jagged attention on batches made from real text: `make demo`.

    python -m examples.real_text [FILES...]

Sentences become sequences of hashed-token embeddings, and a fixed router sends every token to two
experts, so that all lengths are as the text has them.
"""
