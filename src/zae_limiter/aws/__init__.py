"""Find credentials, profiles, roles, region, endpoint and TLS settings through botocore. Blocking."""
