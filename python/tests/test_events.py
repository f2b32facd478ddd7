import asyncio

import pytest
from managers import compute, manager, prompt, small

import cairn


def test_a_view_follows_a_snapshot_and_events(manager):
    first = manager.keys(prompt(3))
    compute(manager, first)
    manager.drain()
    view = cairn.ResidencyView()
    events = manager.events()
    for change in events:
        view.apply(change)
    assert view.size("G1") == view.size("host") == 3
    assert view.match_prefix(first).to_dict() == {"blocks": 3, "device": 3, "host": 0, "disk": 0}
    assert view.tiers_holding(first[0]) == ["G1", "G2"]

    second = manager.keys(prompt(2, seed=1))
    compute(manager, second)
    manager.drain()
    manager.device.reset_inactive()
    changes = list(events)
    assert {change.kind for change in changes} <= {"stored", "removed", "cleared"}
    for change in changes:
        view.apply(change)
    assert view.match_prefix(second).host == 2
    assert len(view) == 5
    assert view.keys("host") == manager.snapshot().keys("host")
    assert list(events) == []


def test_events_from_the_start(manager):
    keys = manager.keys(prompt(2))
    compute(manager, keys)
    manager.drain()
    events = list(manager.events(since=1))
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    stored = events[0]
    assert (stored.kind, stored.tier, stored.keys, stored.parent_hash) == ("stored", "G1", keys, None)
    assert stored.token_ids == []
    assert stored.to_json().startswith('{"event_id":1,"tier":"G1","data":{"stored"')
    resumed = list(manager.events(since=2))
    assert resumed == events[1:]
    with pytest.raises(cairn.OutOfRangeError):
        manager.events(since=1000)


def test_lost_events_become_a_snapshot():
    with cairn.Manager(small(event_log=4)) as manager:
        events = manager.events(since=1)
        for seed in range(20):
            compute(manager, manager.keys(prompt(2, seed)))
            manager.drain()
        view = cairn.ResidencyView()
        changes = list(events)
        assert isinstance(changes[0], cairn.Snapshot)
        for change in changes:
            view.apply(change)
        assert view.size("device") == manager.device.counts.registered


def test_async_iteration_waits_and_ends_with_the_manager():
    async def main():
        manager = cairn.Manager(small())
        seen = []

        async def follow():
            async for change in manager.events(since=1):
                seen.append(change)

        task = asyncio.create_task(follow())
        await asyncio.sleep(0)
        compute(manager, manager.keys(prompt(1)))
        while not seen:
            await asyncio.sleep(0.001)
        manager.close()
        await asyncio.wait_for(task, 10)
        return seen

    assert asyncio.run(main())[0].kind == "stored"


def test_a_manager_without_a_log_says_so():
    with cairn.Manager(small(event_log=0)) as manager, pytest.raises(cairn.FailedPreconditionError, match="event_log"):
        manager.events()


def test_a_view_refuses_what_does_not_follow(manager):
    compute(manager, manager.keys(prompt(1)))
    compute(manager, manager.keys(prompt(1, seed=1)))
    manager.drain()
    events = list(manager.events(since=1))
    view = cairn.ResidencyView()
    with pytest.raises(cairn.Error):
        view.apply(events[1])
