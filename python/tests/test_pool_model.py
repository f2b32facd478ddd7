"""10,000 random calls on a pool, against a model in plain Python."""

import random

import cairn

CAPACITY = 32
CALLS = 10_000


class Model:
    """A pool with LRU in a few lines: which keys are held by which handles, and in which order the others go."""

    def __init__(self):
        self.private = 0
        self.uses = {}  # key -> handles that hold it
        self.inactive = []  # the next victim first

    def free(self):
        return CAPACITY - self.private - len(self.uses) - len(self.inactive)

    def registered(self):
        return {*self.uses, *self.inactive}

    def allocate(self, count):
        if count > self.free() + len(self.inactive):
            return None
        evict = max(0, count - self.free())
        victims, self.inactive = self.inactive[:evict], self.inactive[evict:]
        self.private += count
        return victims

    def hold(self, keys):
        for key in keys:
            if key in self.inactive:
                self.inactive.remove(key)
            self.uses[key] = self.uses.get(key, 0) + 1

    def release(self, keys):
        for key in reversed(keys):  # leaf first
            self.uses[key] -= 1
            if self.uses[key] == 0:
                del self.uses[key]
                self.inactive.append(key)


def check_same(pool, model, handles):
    counts = pool.counts
    assert counts.free == model.free()
    assert counts.inactive == len(model.inactive)
    assert counts.active == model.private + len(model.uses)
    assert counts.registered == len(model.registered())
    for kind, handle, keys in handles:
        assert len(handle) == len(keys) and (kind == "mutable" or list(handle.keys) == keys)


def test_random_calls_agree_with_a_model():
    seed = 17
    random_ = random.Random(seed)
    prompts = [list(cairn.hash_tokens([p] * 12, 2, cairn.KeyHasher("dynamo"))) for p in range(12)]
    pool, model = cairn.BlockPool(CAPACITY, 2, "lru"), Model()
    handles = []  # (kind, handle, keys)

    def take(kind):
        chosen = [entry for entry in handles if entry[0] == kind]
        if not chosen:
            return None, None
        entry = random_.choice(chosen)
        handles.remove(entry)
        return entry[1:]

    for call in range(CALLS):
        action = random_.choice(["allocate", "complete", "register", "match", "release", "share", "drop", "reset", "weak"])
        prompt = random_.choice(prompts)
        if action == "allocate":
            keys = prompt[: random_.randint(1, 6)]
            victims = model.allocate(len(keys))
            try:
                handle, evicted = pool.allocate_with_victims(len(keys))
            except cairn.ExhaustedError:
                assert victims is None, f"call {call}"
                continue
            assert list(evicted) == victims, f"call {call}"
            handles.append(("mutable", handle, keys))
        elif action == "complete":
            handle, keys = take("mutable")
            if handle is not None:
                handles.append(("complete", handle.complete(keys), keys))
                assert handle.closed
        elif action == "register":
            handle, keys = take("complete")
            if handle is not None:
                model.private -= len(keys)
                model.hold(keys)  # a block whose key is there already is freed, and the old one held
                handles.append(("immutable", handle.register(), keys))
        elif action == "match":
            found = []
            for key in prompt:
                if key not in model.registered():
                    break
                found.append(key)
            assert pool.count_prefix(prompt) == len(found)
            handle = pool.match_prefix(prompt)
            model.hold(found)
            handles.append(("immutable", handle, found))
        elif action == "share":
            handle, keys = take("immutable")
            if handle is not None:
                count = random_.randint(0, len(keys))
                model.hold(keys[:count])
                handles += [("immutable", handle, keys), ("immutable", handle.share(count), keys[:count])]
        elif action in ("release", "drop"):
            kind = random_.choice(["mutable", "complete", "immutable", "immutable", "immutable"])
            handle, keys = take(kind)
            if handle is not None:
                if kind == "immutable":
                    model.release(keys)
                else:
                    model.private -= len(keys)
                if action == "release":
                    handle.release()
                del handle
        elif action == "reset":
            outcome = pool.reset(prompt)
            reset = [key for key in prompt if key in model.inactive]
            assert outcome.reset == len(reset) and outcome.in_use == sum(key in model.uses for key in prompt)
            model.inactive = [key for key in model.inactive if key not in reset]
        else:
            handle, keys = take("immutable")
            if handle is not None:
                weak = handle.downgrade()
                handle.release()
                model.release(keys)
                again = weak.upgrade()
                assert again is not None, f"call {call}"
                model.hold(keys)
                handles.append(("immutable", again, keys))
                del again  # a later drop has to be the last reference
        if len(handles) > 12:  # keep some room
            kind, handle, keys = handles.pop(0)
            handle.release()
            if kind == "immutable":
                model.release(keys)
            else:
                model.private -= len(keys)
        if call % 50 == 0:
            check_same(pool, model, handles)
            pool.check_invariants()
    assert pool.stats.evicted > 100 and pool.stats.hits > 100, "the calls did not reach what they test"
