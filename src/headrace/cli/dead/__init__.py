"""``headrace dead …``: messages that could not be handled, in the streams that keep them."""
