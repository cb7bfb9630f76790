"""Windows that keep their messages: a message store, full-state aggregates, retention; no Spark here."""
