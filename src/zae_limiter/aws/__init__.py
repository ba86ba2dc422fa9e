"""What botocore is best at: who calls (credentials, profiles, roles), where (region, endpoint), and TLS. Blocking."""
