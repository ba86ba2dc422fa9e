"""Limit the requests of a web application. The core is pure; each framework has an adapter in a module of its own.

``Ask`` is what a rule returns: who asks, for what, and at which cost. Importing this package imports no framework.
"""

from zae_limiter.web.addresses import client_address
from zae_limiter.web.ask import Ask, Dialect, Role

__all__ = ["Ask", "Dialect", "Role", "client_address"]
