"""Bugs planted into generated kernels, each of which the suite must catch.

A check that nothing can fail proves nothing.  Every bug here is one that a compiler of ragged loops
makes: a mask dropped, a bound off by one, a block initialised too often.  It is a small change of
the text that is printed for an example; a change whose text is not there is an error, so that no
bug can die unnoticed.

    python -m tests.planted [NAME]      which check catches which bug

Two changes look like bugs and are none, and are not here: scores outside of a range may be filled
with 0 instead of -inf as long as the weights made of them are masked too (a larger maximum cancels
out), and a dead step may run again what is idempotent, such as a masked store.
"""
