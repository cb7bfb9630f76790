"""The Kafka target: one transaction per task, committed by the driver after its decision is in the ledger."""
