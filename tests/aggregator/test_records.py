"""What happened to a bucket is read off a log row or a stream record."""

from typing import Any

from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Change, Key
from zae_limiter.schema.usage_item import pad_sequence
from zae_limiter_aggregator.records import BucketChange, from_log, from_stream

PK = "ns/BUCKET#user-1#gpt-4#2"
BUCKET = BucketKey("ns", "user-1", "gpt-4", 2)


def record(sk: str, **images: dict[str, Any]) -> dict[str, Any]:
    keys = {"PK": {"S": PK}, "SK": {"S": sk}}
    told = {"Keys": keys, "SequenceNumber": "111", "ApproximateCreationDateTime": 1_704_119_045.0, **images}
    return {"eventName": "MODIFY", "dynamodb": told}


def image(**numbers: int) -> dict[str, Any]:
    return {"PK": {"S": PK}} | {name: {"N": str(number)} for name, number in numbers.items()}


def test_a_log_row_names_limits() -> None:
    """The write counter is no limit: it is how often the bucket was written."""
    row = Change(7, Key(PK, "#STATE"), 3_600_000, {"b_tokens_in_tc": 5_000, "b_rpm_tc": -1_000, "b_wcu_tc": 3})

    expected = BucketChange(BUCKET, pad_sequence("7"), 3_600_000, {"tokens_in": 5_000, "rpm": -1_000}, 3)
    assert expected == from_log(row)


def test_a_row_of_no_bucket_tells_nothing() -> None:
    """A damaged key is nobody's usage."""
    assert from_log(Change(7, Key("ns/SYSTEM#", "#STATE"), 0, {"b_rpm_tc": 1})) is None


def test_a_stream_record_tells_the_difference_of_two_images() -> None:
    """Balances are not looked at, and a limit that was just added starts from nothing."""
    old = image(b_rpm_tc=1_000, b_rpm_tk=9_000, b_wcu_tc=1)
    new = image(b_rpm_tc=3_000, b_rpm_tk=7_000, b_tpm_tc=500_000, b_wcu_tc=2)

    expected = BucketChange(BUCKET, pad_sequence("111"), 1_704_119_045_000, {"rpm": 2_000, "tpm": 500_000}, 1)
    assert expected == from_stream(record("#STATE", OldImage=old, NewImage=new))


def test_a_new_bucket_has_used_what_it_began_with() -> None:
    """There is no old image."""
    found = from_stream(record("#STATE", NewImage=image(b_rpm_tc=1_000, b_wcu_tc=1)))

    assert found is not None
    assert {"rpm": 1_000} == found.spent_milli


def test_other_records_tell_nothing() -> None:
    """A bucket that is gone, and items that are none."""
    assert from_stream(record("#STATE", OldImage=image(b_rpm_tc=1_000))) is None
    assert from_stream(record("#META", NewImage=image(b_rpm_tc=1_000))) is None
