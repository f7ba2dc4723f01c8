"""Sequences of requests and deaths that allocators are recorded with."""

import math
import random


def sequence(seed, least, most, room, count, emptied=0):
    """Requests of `least` to `most` bytes, most of them of a few sizes, as in training, and deaths so that no more than about `room` is
    alive. An event is a request, -1 - i for the death of what event i asked for, or 0, which so many of them are, for `empty_cache`."""
    draw = random.Random(seed)
    size = lambda: int(draw.choice([2 ** draw.uniform(math.log2(least), math.log2(most)), draw.uniform(least, most)]))
    usual = [size() for _ in range(6)]
    events, live = [], {}
    while len(events) < count:
        if draw.random() < emptied:
            events.append(0)
        elif not live or draw.random() < 0.6 and sum(live.values()) < room:
            live[len(events)] = draw.choice(usual) if draw.random() < 0.6 else size()
            events.append(live[len(events)])
        else:
            at = draw.choice(sorted(live))
            del live[at]
            events.append(-1 - at)
    return events
