"""Between the listener and the endpoints: what every request passes, whatever it asks for.

``middleware`` gives a request its id and answers errors, ``gateway`` checks a
signature, ``visitors`` refuses pages of other sites, ``front`` finds the endpoint.
"""
