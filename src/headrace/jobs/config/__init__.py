"""What the service is told by its configuration.

``config`` are the settings, of the file and of flags; ``tls`` the certificate they name; ``seeds`` the
producers, channels and consumers in it, applied to the database when they are new or changed. What a running
service takes of a change is decided in ``server.reload``.
"""
