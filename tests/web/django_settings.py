"""The settings of the Django project that tests run, in this process and under real servers."""

import os

SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["*"]
DATABASES: dict[str, object] = {}
INSTALLED_APPS = ["rest_framework"]
ROOT_URLCONF = "tests.web.django_urls"
MIDDLEWARE = ["zae_limiter.web.django.RateLimitMiddleware", "tests.web.django_urls.authenticated"]
REST_FRAMEWORK = {"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []}
USE_TZ = True
LOGGING_CONFIG = None

ZAE_LIMITER = {"limiter": os.environ.get("ZAE_LIMITER_URL"), "rules": "tests.web.django_urls.rules"}
