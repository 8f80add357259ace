"""Tasks with warm contexts come first, and the others are not starved."""

from holdfast.core.queries import Waiting
from holdfast.work.ordering import MAX_PASSED, MAX_WARM, WarmTasks

COLD, WARM = Waiting("a", "cold", 1), Waiting("b", "warm", 1)


def test_a_warm_task_comes_first_a_few_times_in_a_row():
    """Then the first task of the list does, once."""
    tasks = WarmTasks()
    tasks.record([("b", "warm")])

    firsts = [tasks.order([COLD, WARM])[0] for _ in range(2 * (MAX_PASSED + 1))]

    assert firsts == ([WARM] * MAX_PASSED + [COLD]) * 2


def test_without_warm_tasks_the_order_stays():
    """And a task that has not run for long is not taken for warm."""
    tasks = WarmTasks()
    assert tasks.order([COLD, WARM]) == [COLD, WARM]
    tasks.record([("b", "warm")])
    tasks.record([("c", str(n)) for n in range(MAX_WARM)])

    assert tasks.order([COLD, WARM]) == [COLD, WARM]
    assert tasks.order([]) == []
