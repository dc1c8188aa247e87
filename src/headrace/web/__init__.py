"""HTTP servers of every part: one set of limits before console, jobs, monitoring and pages of numbers.

``connections`` decides who may stay connected; ``pages`` serves small pages with the standard library,
``asgi`` an application with uvicorn.
"""
