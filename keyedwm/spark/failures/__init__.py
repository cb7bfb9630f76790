"""Why a query failed, in one sentence, and where that sentence is left."""
