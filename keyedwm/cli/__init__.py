"""The `keyedwm` command and its subcommands: broker, demo, doctor, inspect, migrate."""
