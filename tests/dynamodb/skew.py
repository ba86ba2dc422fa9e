"""The refusal of AWS for a request signed more than five minutes before or after its time."""

from datetime import UTC, datetime

from tests.dynamodb.faults import Refuse

CODE = "com.amazon.coral.service#InvalidSignatureException"
TOLERANCE_S = 300
FORMAT = "%Y%m%dT%H%M%SZ"


def refusal(signed_at: str, server_s: float) -> Refuse | None:
    """Return the fault of a request with this X-Amz-Date; None if it is close enough."""
    signed_s = datetime.strptime(signed_at, FORMAT).replace(tzinfo=UTC).timestamp()
    if abs(signed_s - server_s) <= TOLERANCE_S:
        return None
    if signed_s < server_s:
        bound = f"{stamp(server_s - TOLERANCE_S)} ({stamp(server_s)} - 5 min.)"
        said = f"Signature expired: {signed_at} is now earlier than {bound}"
    else:
        bound = f"{stamp(server_s + TOLERANCE_S)} ({stamp(server_s)} + 5 min.)"
        said = f"Signature not yet current: {signed_at} is still later than {bound}"
    return Refuse(400, CODE, said)


def stamp(time_s: float) -> str:
    """Return a time in the format of X-Amz-Date."""
    return datetime.fromtimestamp(time_s, UTC).strftime(FORMAT)
