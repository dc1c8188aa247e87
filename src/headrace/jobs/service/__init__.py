"""What an operation is: functions on a transaction, no HTTP, no threads, no clock of their own."""
