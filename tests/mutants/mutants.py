"""Every mutant."""

from __future__ import annotations

from tests.mutants.of_columns import COLUMNS
from tests.mutants.of_core import CORE
from tests.mutants.of_lateness import LATENESS
from tests.mutants.of_models import MODELS

MUTANTS = [*CORE, *MODELS, *COLUMNS, *LATENESS]
