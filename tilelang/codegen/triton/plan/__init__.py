"""plan(problem, config, target) -> Plan | Refusal: what was chosen, checked to be legal."""
