"""plan(problem, config, target) -> Plan: every choice, checked to be legal."""

from .search import default_config as default_config
from .search import plan as plan
from .types import Plan as Plan
