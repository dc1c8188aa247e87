"""What a group has at the server: its record in a bucket, its work queue, its consumers, who is there.

The room makes, reads and removes these. It is handed a JetStream context. Begin
reading at ``bucket``, then ``work_queue``.
"""
