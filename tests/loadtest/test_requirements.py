"""Which distributions another Python needs, from the metadata of distributions."""

import pytest

from zae_limiter.loadtest.requirements import (
    DistributionMetadata,
    Requirement,
    applies,
    markers_of,
    parse_requirement,
    required,
)

LINUX = markers_of("3.13") | {"extra": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("botocore>=1.35", Requirement("botocore", versions=">=1.35")),
        ("Flask_Login", Requirement("flask-login")),
        ("python-socketio[client]>=5.13.0", Requirement("python-socketio", ("client",), ">=5.13.0")),
        ("pytest (<10,>=8.3)", Requirement("pytest", versions="<10,>=8.3")),
        (
            "greenlet>=3.2; platform_python_implementation == 'CPython'",
            Requirement("greenlet", versions=">=3.2", condition="platform_python_implementation == 'CPython'"),
        ),
    ],
)
def test_requirement_is_read_from_its_forms(text: str, expected: Requirement) -> None:
    """Names are normalized, and the condition is kept."""
    assert expected == parse_requirement(text)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("", True),
        ("python_version < '3.12'", False),
        ("python_version >= '3.9'", True),
        ("python_full_version < '3.13.0'", False),
        ("python_version == '3.13'", True),
        ("sys_platform == 'win32'", False),
        ("sys_platform != 'win32' and platform_machine in 'x86_64 aarch64'", True),
        ("sys_platform == 'win32' or (os_name == 'posix' and python_version > '3')", True),
        ("platform_machine not in 'x86_64'", False),
        ("extra == 'dns'", False),
    ],
)
def test_condition_is_evaluated_for_the_target(condition: str, expected: bool) -> None:
    """Versions are compared as numbers: 3.9 is older than 3.13."""
    assert expected is applies(condition, LINUX)


@pytest.mark.parametrize("condition", ["__import__('os')", "python_version", "unknown == '1'", "1 <", "a is b"])
def test_condition_of_another_form_is_refused(condition: str) -> None:
    """Metadata is data: nothing of it is executed."""
    with pytest.raises(ValueError, match="not a"):
        applies(condition, LINUX)


def test_required_distributions_follow_conditions_and_extras_of_the_target() -> None:
    """What only another platform, Python or extra needs is left out."""
    known = {
        "locust": DistributionMetadata("2.0", ("socketio[client]>=5", "pywin32; sys_platform == 'win32'", "flask")),
        "socketio": DistributionMetadata("5.1", ("requests; extra == 'client'", "aiohttp; extra == 'async'")),
        "flask": DistributionMetadata("3.0", ("locust", "tomli; python_version < '3.11'")),
        "requests": DistributionMetadata("2.9", ("audioop>=1,<2; python_version >= '3.13'",)),
    }
    found = required([Requirement("locust")], known.get, markers_of("3.13"))

    assert ["audioop>=1,<2", "flask==3.0", "locust==2.0", "requests==2.9", "socketio==5.1"] == sorted(
        str(one) for one in found.values()
    )
