"""--health-check: a command decides whether a node is fit, before it joins and after one of its workers failed."""
import pathlib

import pytest

from harness import alive

FAILS_ONCE = ("sh", "-c", '[ -e once ] || { : >once; exit 3; }; echo worked')


def alone(job, check, *words, restarts=1):
    """A job of one node whose worker fails once."""
    return job.agent("a", f"--max-restarts={restarts}", f"--health-check={check}", *words, "--no-python", *FAILS_ONCE)


def test_it_runs_before_the_join_and_after_a_failure(job):
    a = alone(job, 'echo "$MUSTER_HEALTH_WHEN" >>when; cat >>when')  # its standard input is empty
    code, out, err = a.finish()
    assert code == 0 and "worked" in out, err
    assert (job.tmp / "when").read_text() == "join\nfailure\n"
    assert "health-check" not in err


@pytest.mark.parametrize("check, said", [
    ("exit 2", "it ended with status 2; whether this node is fit is not known, so it takes part"),
    ("no-such-program", "it ended with status 127: .*no-such-program.*; whether"),
    ("echo CRITICAL; kill -SEGV $$", "it died of signal 11, SIGSEGV: CRITICAL; whether"),
])
def test_another_status_is_no_verdict_and_is_logged_once(job, check, said):
    a = alone(job, check)
    a.wait_said("--health-check: " + said)
    code, out, err = a.finish()
    assert code == 0 and "worked" in out, err
    assert err.count("--health-check") == 1, err


def test_at_the_limit_it_is_killed_with_what_it_left_in_the_background(job):
    a = alone(job, "sleep 3600 & echo $! >>left; sleep 3600", "--health-timeout=1")
    code, out, err = a.finish()
    assert code == 0 and "worked" in out, err
    assert err.count("--health-check: it did not end within 1 s; whether this node is fit is not known") == 1, err
    pids = [int(pid) for pid in pathlib.Path(job.tmp / "left").read_text().split()]
    assert len(pids) == 2 and not any(map(alive, pids))


def test_a_job_that_ends_does_not_wait_for_it(job):
    """No restart is left: the check that follows the failure would never end."""
    a = alone(job, '[ $MUSTER_HEALTH_WHEN = join ] || exec sleep 3600', "--health-timeout=3600", restarts=0)
    code, _, err = a.finish()
    assert code == 3 or code == 1, err
    assert "exit code 3" in err
