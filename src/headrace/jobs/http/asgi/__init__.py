"""Between the listener and the endpoints: what every request passes, whatever it asks for.

``connection`` is uvicorn's, with limits; ``middleware`` gives a request its id and answers errors,
``gateway`` checks a signature, ``visitors`` refuses pages of other sites, ``front`` finds the endpoint.
"""
