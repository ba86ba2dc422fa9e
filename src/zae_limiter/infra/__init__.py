"""What provides a stack: blocking, on CloudFormation, and a local AWS to try it on."""
