"""Python processes: compiled functions and their cache, private directories, workers and how they are forked."""
