"""Finished requests on their way to those who count them."""

from brain_coord.observe.finished import AT_ONCE, FinishedRequests
from tests.web.test_views import finished


def test_requests_are_told_of_some_at_a_time_and_the_rest_before_anybody_reads():
    requests, told = FinishedRequests(), []
    requests.watchers += [told.extend, lambda some: told.append(len(some))]
    for number in range(AT_ONCE + 3):
        requests.add(finished(number))
    assert told[-1] == AT_ONCE
    requests.tell()
    assert told[-1] == 3
    ids = [each.decision_id for each in told if not isinstance(each, int)]
    assert ids == [finished(number).decision_id for number in range(AT_ONCE + 3)], "each once, in their order"
