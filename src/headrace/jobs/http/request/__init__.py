"""Parts of every endpoint: its declaration, the reading of requests, and who may ask.

``endpoint`` declares one, ``incoming`` reads bodies, forms, tokens and numbers and leads to the next page,
``access`` says whose request it is and what of it is audited. Begin with :class:`.endpoint.Endpoint`.
"""
