"""What is said when the demo is over. Pure."""

from zae_limiter.cli.demo.progress import Report


def summary_lines(report: Report) -> list[str]:
    """Tell how it went."""
    share = f"{report.highest_share * 100:.1f} %"
    if report.is_exceeded:
        verdict = f"EXCEEDED: {share} of capacity and refill taken; please report this"
    else:
        verdict = f"never exceeded: at most {share} of capacity and refill taken"
    return [
        "",
        f"{report.callers} callers of {report.projects} projects, {report.seconds:.1f} s, in {report.location}",
        f"  calls admitted    {report.admitted:8,}   {report.failed:,} of them failed and gave their tokens back",
        f"  calls rejected    {report.rejected:8,}   each was told when to try again",
        f"  tokens estimated  {report.estimated:8,}   taken before the calls",
        f"  tokens used       {report.used:8,}   adjusted after them",
        f"  limits            {verdict}",
        "",
        "Next: zae-limiter acquire user-1 gpt-4 -c rpm:1 -l rpm:100",
    ]
