"""One of two who finish the last two children of a parent, at the same moment, again and again.

test    ──"go"──▶ both                     child ──▶ "holding" … "go" ──▶ done ──▶ "done"
"""

import holdfast

from .actor import Post


def child(post: Post, *, path: str, rounds: int) -> None:
    """Hold a child in each round, and finish it when told to."""
    with holdfast.connect(path) as queue:
        for _ in range(rounds):
            job = queue.next(["child"], wait=60, lease=60, renew=False)
            assert job is not None
            post.say("holding")
            assert post.hear() == "go"
            job.done()
            post.say("done")
