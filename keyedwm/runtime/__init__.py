"""The Python process: compiled functions and their cache, private directories, settings of workers."""
