"""Estimate: seconds of a plan by arithmetic alone; compiles nothing, and needs no compiler.

    steps      every step of a launch, as arrays; offsets that a call will bring are typical ones
    work       what the units of the core do in one run of a section
    seconds    steps, work and bytes -> seconds, with what they are made of
    resize     a plan with other blocks
    rank       the blocks that can be chosen, best first

The costs of units (`costs`) are fitted to schedules that the real compiler made.
"""
