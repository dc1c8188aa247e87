"""``headrace context …``: the files of the ``nats`` tool, read and written."""
