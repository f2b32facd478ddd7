import asyncio
import gc

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


async def parked(task):
    """Runs other tasks until the task awaits something."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()


def test_async_iteration_waits_and_ends_with_the_manager():
    async def main():
        manager = cairn.Manager(small())
        seen = asyncio.Queue()

        async def follow():
            async for change in manager.events(since=1):
                seen.put_nowait(change)

        task = asyncio.create_task(follow())
        await parked(task)
        compute(manager, manager.keys(prompt(1)))
        first = await asyncio.wait_for(seen.get(), 10)
        manager.close()
        await asyncio.wait_for(task, 10)
        return first

    assert asyncio.run(main()).kind == "stored"


def test_async_iteration_sleeps_until_another_thread_adds_an_event(monkeypatch):
    async def main():
        with cairn.Manager(small()) as manager:
            events = manager.events(since=1)
            polls = []
            poll = events.poll
            monkeypatch.setattr(events, "poll", lambda: polls.append(1) or poll())
            task = asyncio.ensure_future(anext(events))
            await parked(task)
            # Nothing but the eventfd wakes the loop: no timer is pending.
            assert len(polls) == 1 and not asyncio.get_running_loop()._scheduled
            await asyncio.to_thread(compute, manager, manager.keys(prompt(1)))
            event = await asyncio.wait_for(task, 10)
            return event.kind, len(polls)

    assert asyncio.run(main()) == ("stored", 2)


def test_a_manager_closed_by_another_thread_ends_async_iteration():
    async def main(manager):
        held = manager.device.allocate(1)  # the manager goes on until this is released
        task = asyncio.ensure_future(anext(manager.events(since=1), "the end"))
        await parked(task)
        with pytest.warns(ResourceWarning):
            await asyncio.to_thread(manager.close)
        assert await asyncio.wait_for(task, 10) == "the end"
        held.release()

    asyncio.run(main(cairn.Manager(small())))


def test_async_iteration_can_be_given_up_and_goes_on():
    async def main():
        with cairn.Manager(small()) as manager:
            events = manager.events(since=1)
            for _ in range(100):
                task = asyncio.ensure_future(anext(events))
                await parked(task)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            # Two that wait for the same cursor are both woken, and one of them gets the event.
            tasks = [asyncio.ensure_future(anext(events)) for _ in range(2)]
            await parked(tasks[0])
            manager.pause("device", "host")
            compute(manager, manager.keys(prompt(1)))
            done, waiting = await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result().kind for task in done] == ["stored"]
            del events
            manager.close()
            for task in waiting:
                with pytest.raises(StopAsyncIteration):
                    await asyncio.wait_for(task, 10)

    asyncio.run(main())


def test_a_cursor_that_goes_is_not_woken():
    async def main():
        with cairn.Manager(small()) as manager:
            task = asyncio.ensure_future(anext(manager.events(since=1)))
            await parked(task)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            gc.collect()
            compute(manager, manager.keys(prompt(1)))
            manager.drain()

    asyncio.run(main())


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
