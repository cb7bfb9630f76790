"""Windows over frames, vectorised; no Spark here."""
