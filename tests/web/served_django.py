"""The Django project as applications for real servers."""

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from tests.web.django_ready import RULES

assert RULES, "imported so that Django is set up"

application = get_wsgi_application()
asgi = get_asgi_application()
