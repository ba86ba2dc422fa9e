"""Provide a stack with CloudFormation, and a local AWS to try it on. Blocking."""
