"""Importing this sets Django up. It comes before the views, because those of the REST framework need it."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.web.django_settings")
django.setup()

RULES = "tests.web.django_urls.rules"
