"""What every endpoint is made of: its declaration, the reading of requests, and who may ask.

``endpoint`` declares one, ``incoming`` reads bodies, forms, tokens and numbers, ``access`` says whose request
it is and what of it is audited, ``links`` leads to the next page. Begin with :class:`.endpoint.Endpoint`.
"""
