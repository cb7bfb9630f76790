"""Local directories and addresses, and the files that a writer keeps there."""
