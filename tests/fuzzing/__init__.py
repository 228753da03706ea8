"""Random kernels: drawn as data, printed as source, and evaluated without the compiler.

    python -m tests.fuzzing kernels --count N --seed S

program.py   what a random kernel is
draw.py      draws one
text.py      prints it as a kernel that a user could have written
meaning.py   evaluates it in float64, straight from the description
headed.py    puts its heads into columns; relocated.py draws rows that lie elsewhere than tiles
apart.py     ranges with lengths, groups in an order of memory; biased.py, parted.py: tables, tiles
strict.py    runs it in the strict TPU interpreter: --strict
inputs.py    arguments: adversarial offsets, and NaN in everything that must not be read
trial.py     runs a kernel under a config and says what is wrong
shrink.py    makes a failing program smaller
"""
