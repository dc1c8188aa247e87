"""The operations: functions on a transaction, without HTTP, threads or a clock of their own."""
