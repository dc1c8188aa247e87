"""What goes: definitions that are deleted, messages past their time, the space they leave."""
