"""Code generation: Plan -> Source.  Prints what the plan says; decides and proves nothing."""
