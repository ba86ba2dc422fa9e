"""Define the stack of a limiter as an AWS CDK construct, over the same template.

The extra ``cdk`` installs the AWS CDK.
"""

import tempfile
from importlib import metadata
from pathlib import Path

from zae_limiter.installation import extra_command

try:
    import aws_cdk
    from aws_cdk import aws_lambda, aws_s3_assets, cloudformation_include
    from constructs import Construct
except ImportError as error:
    raise ImportError(f"the construct needs the AWS CDK; install it: {extra_command('cdk', 'aws-cdk-lib')}") from error

from zae_limiter.infra import tags
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.template import limiter_template

_FUNCTION = "AggregatorFunction"


class Limiter(Construct):
    """A limiter as the only content of a stack; its name is the name of the stack.

    The aggregator's code is an asset of the application, so every deployment uploads it. Run
    ``zae-limiter upgrade`` once after the first deployment: it writes the version record and the
    default namespace to the table.

    Example:
        ```python
        stack = aws_cdk.Stack(app, "my-app")
        limiter = Limiter(stack, "Limiter", options=StackOptions(lambda_memory=512))
        limiter.output("AppRoleArn")
        ```
    """

    def __init__(self, scope: Construct, construct_id: str, *, options: StackOptions | None = None) -> None:
        """Add all resources of the options to the stack of ``scope``.

        Raises:
            InvalidNameError: The name of the stack is not valid for a limiter.
            ValidationError: A name that is derived from it is too long.
        """
        super().__init__(scope, construct_id)
        chosen = options or StackOptions()
        stack = aws_cdk.Stack.of(self)
        parameters = template_parameters(stack.stack_name, chosen)
        with tempfile.TemporaryDirectory() as folder:
            template = Path(folder, "limiter.yaml")
            template.write_text(limiter_template(), encoding="utf-8")
            self.template = cloudformation_include.CfnInclude(
                self, "Template", template_file=str(template), parameters=parameters
            )
            if chosen.enable_aggregator:
                self._bring_code(Path(folder))
        version = metadata.version("zae-limiter")
        for key, value in tags.limiter_tags(stack.stack_name, version, chosen.tags).items():
            stack.tags.set_tag(key, value)

    def output(self, name: str) -> str:
        """Return an output of the stack, such as ``TableName`` or ``AcquireOnlyPolicyArn``."""
        return str(aws_cdk.Token.as_string(self.template.get_output(name).value))

    def _bring_code(self, folder: Path) -> None:
        """Make the function use the package of this installation, which CDK uploads."""
        package = folder / "aggregator.zip"
        package.write_bytes(build_package())
        asset = aws_s3_assets.Asset(self, "Code", path=str(package))
        function = self.template.get_resource(_FUNCTION)
        function.code = aws_lambda.CfnFunction.CodeProperty(s3_bucket=asset.s3_bucket_name, s3_key=asset.s3_object_key)
