"""What a job has left out is said in its status, its summary and its result."""

from __future__ import annotations

from edl.codec import decode_status
from edl.core.job_result import of_status
from edl.render import job_text
from edl_proto.v1 import job_pb2


def test_tasks_that_were_set_aside_are_all_counted() -> None:
    message = job_pb2.JobStatus(name="mine", type=job_pb2.TRAIN, state=job_pb2.SUCCEEDED)
    message.tasks["training"].dead = 400
    message.tasks["evaluation"].dead = 20
    for number in range(100):
        message.dead_letters.add(task=f"training/1/{number}", records=f"a [{number}, {number + 1})")
    status = decode_status(message)
    for lines in (job_text.summary(status), job_text.status_lines(status)):
        assert "  NOT done: 420 tasks failed in every attempt" in lines
        assert "    training/1/4: a [4, 5)" in lines
        assert "    and 415 more: edl events mine" in lines
    assert of_status(status)["dead_tasks"] == 420
    message.tasks["evaluation"].dead = 0
    message.tasks["training"].dead = 100
    assert "    and 95 more: edl status mine -o json" in job_text.summary(decode_status(message))
    message.tasks.clear()
    assert "dead_tasks" not in of_status(decode_status(message))
