"""How much faster than what was asked for a form must be estimated, before it is taken instead."""

# How much faster steps with many groups, or with whole arrays, must be where nobody asks for them:
# how long groups are is known as a mean only.  Rows that are only moved take what copies take.
FORM_WORTH = 1.3
# For loops inside of the step little goes by that: products of small groups take 0.8 to 1.0 of the
# time by v6e's schedules (CLOSE is a guess); inside of the only one as much, for fewer bytes.
INSIDE_CLOSE, INSIDE_WORTH, ONCE_WORTH = 1.1, 1.08, 1.02
# Of many products that wait for each other: by schedules of gradients of attention, what is
# estimated to be 1.14 times faster takes 1.13 of the time on v5e and v5p; 1.11 and 1.16 take 0.95
# and 0.83.
CHAINED, CHAINED_WORTH = 4, 1.15
# Half a block must gain that much: 256 positions of rope take 1.01 of what 512 take and grouped
# queries of 128 1.16 of 256 on v5p, estimated at 0.98 and 0.97; windows of 128 0.78, at 0.85.
SMALLER_WORTH = 1.04
# Half of the rows alone: by schedules of attention with small and odd lengths for all generations
# what is estimated to be 1.06 to 1.15 times faster takes 0.76 to 1.0 of the time, 0.9 in the mean;
# grouped queries of 16,384 positions take 1.2 on v5p, estimated at 0.93.
FEWER_WORTH = 1.08
# What a step hides by pieces that fit is not estimated: attention of 4096 keys is estimated to take
# 1.09 of the time in tiles of 1024, and takes 0.88 by v5e's schedules.
PIECES_CLOSE = 1.15
UNPROVED_WORTH = 2.0  # pipelines inside of a step are estimated to take 0.6 of v6e's schedules
