"""Messages as chunks of rows, over a link: exactly a range in order, or the latest of each subject.

``reader`` reads a range through a consumer; what that cannot give comes by ``direct_gets`` in batches, or by
``message_gets`` one by one. ``snapshot`` reads the latest message of each subject.
"""
