"""Names with signs, as providers of models and of identities assign them, and names that begin alike."""

ENTITY, PARENT = "team/a|b", "auth0|507f1f77bcf86cd799439020"
RESOURCES = (
    "@cf/meta/llama-3.1-8b",
    "ft:gpt-4o:acme::abc123",
    "meta-llama/llama-3-8b:free",
    "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-pro-v1:0",
    "accounts/acme/deployments=a1",
    "openai|gpt-4o+search",
)
ALIKE = ("gpt-4", "gpt-4/0", "gpt-4:free", "gpt-4|b", "gpt-4=", "gpt-4+0", "gpt-4@0")
"""A search for one of them must not find another."""
