"""Objects that outlive others, threads, forks, and the end of the interpreter."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pytest
from managers import compute, manager, prompt, small
from test_scheduler import Engine, config

import cairn


ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}


def run(script, tmp_path):
    """Runs a script in an interpreter of its own; it may import what the tests have."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_a_closed_manager_refuses_everything(manager):
    device, keys = manager.device, manager.keys(prompt(1))
    manager.close()
    manager.close()
    assert manager.closed
    for use in (manager.status, manager.metrics, lambda: manager.load(keys), lambda: manager.memory(), lambda: manager.device,
                lambda: device.allocate(1), lambda: device.counts):
        with pytest.raises(cairn.FailedPreconditionError, match="closed"):
            use()


def test_blocks_put_the_end_of_a_closed_manager_off(tmp_path):
    config = small(disk={"blocks": 64, "path": str(tmp_path / "blocks"), "direct": False})
    manager = cairn.Manager(config)
    keys = manager.keys(prompt(2))
    compute(manager, keys)
    blocks = manager.device.match_prefix(keys)
    with pytest.warns(ResourceWarning, match="still alive"):
        manager.close()
    assert blocks.keys == keys
    with pytest.raises(cairn.Error):
        cairn.Manager(config)  # the file is in use
    blocks.release()
    del blocks
    gc.collect()
    cairn.Manager(config).close()


def test_a_manager_that_is_dropped_is_closed(tmp_path):
    config = small(disk={"blocks": 64, "path": str(tmp_path / "blocks"), "direct": False})
    for _ in range(3):
        cairn.Manager(config)
        gc.collect()


def test_a_load_that_nobody_takes_leaves_its_blocks(manager):
    keys = manager.keys(prompt(4))
    compute(manager, keys)
    for _ in range(50):
        manager.load(keys)
    manager.drain()
    gc.collect()
    assert manager.device.counts.active == 0


def test_closing_while_another_thread_is_in_a_call():
    manager = cairn.Manager(small())
    started = threading.Barrier(5)
    failed = []

    def call():
        keys = manager.keys(prompt(3))
        started.wait()
        try:
            while True:
                manager.locate(keys)
                manager.status()
                manager.load(keys).wait(5)
        except cairn.FailedPreconditionError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        manager.close()
    for thread in threads:
        thread.join(30)
    assert len(failed) == 4


def test_handles_are_dropped_on_any_thread(manager):
    keys = manager.keys(prompt(4))
    compute(manager, keys)
    handles = [manager.load(keys).wait().blocks for _ in range(64)] + [manager.device.match_prefix(keys) for _ in range(64)]
    assert manager.device.counts.active == 4

    def drop():
        while True:
            try:
                handles.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert manager.device.counts.active == 0


def test_a_forked_child_gets_an_error(tmp_path):
    out = run(
        """
        import os, sys
        import cairn
        from managers import compute, prompt, small
        from test_scheduler import Engine
        manager = cairn.Manager(small())
        engine = Engine()
        keys = manager.keys(prompt(2))
        compute(manager, keys)
        blocks = manager.device.match_prefix(keys)
        array = manager.memory().array()
        load = manager.load(keys)
        load.wait()
        child = os.fork()
        if child == 0:
            count = 0
            for use in (manager.status, lambda: manager.load(keys), lambda: blocks.block_ids, lambda: array.pointer,
                        lambda: engine.scheduler.build(1), lambda: engine.worker.take_outcomes(), manager.close):
                try:
                    use()
                except cairn.FailedPreconditionError as error:
                    assert "before a fork" in str(error), error
                    count += 1
            blocks = load = array = None
            cairn.Manager(small()).close()  # a manager of its own
            print(count, flush=True)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(manager.load(keys).wait().prefix)
        load = blocks = None
        engine.close()
        manager.close()
        """,
        tmp_path,
    )
    assert out.split() == ["7", "2"]


EXITS = {
    "copies in flight": "manager.load(keys); manager.offload(keys, into='disk')",
    "blocks held": "held = manager.host.match_prefix(keys); load = manager.load(keys).wait()",
    "a daemon thread that waits": """
import threading
def wait():
    try:
        while True:
            manager.load(keys).wait()
    except cairn.Error:
        pass
threading.Thread(target=wait, daemon=True).start()
import time; time.sleep(0.05)
""",
}


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_exits_in_order(how, tmp_path):
    script = f"""
import os
import cairn
from managers import compute, prompt, small
config = small(disk={{"blocks": 512, "path": "blocks", "direct": False}})
config["device"]["blocks"] = config["host"]["blocks"] = 200
config["model"] |= {{"layers": 32, "heads": 8, "head_size": 128}}
config["offload"]["disk"] = {{"mode": "write-through"}}
manager = cairn.Manager(config)
keys = manager.keys(prompt(150))
compute(manager, keys)
{EXITS[how]}
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_the_file_is_whole_after_an_exit(tmp_path):
    script = """
        import cairn
        from managers import compute, prompt, small
        config = small(disk={"blocks": 64, "path": "blocks", "direct": False})
        config["model"]["secret"] = "ab" * 32
        config["offload"]["disk"] = {"mode": "write-through"}
        manager = cairn.Manager(config)
        keys = manager.keys(prompt(8))
        print(manager.locate(keys).blocks, manager.status().incident_count)
        compute(manager, keys)
        manager.drain()
        """
    assert run(script, tmp_path).split() == ["0", "0"]
    assert run(script, tmp_path).split() == ["8", "0"], "closed in order, so the second start finds all, without an incident"


def test_schedulers_and_workers_are_closed_at_exit(tmp_path):
    run(
        """
        import cairn
        from test_scheduler import Engine
        engine = Engine()
        engine.step()
        """,
        tmp_path,
    )


def test_a_worker_keeps_its_scheduler_and_tensors():
    engine = Engine()
    worker = engine.worker
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        engine.scheduler.close()
    del engine.kv
    gc.collect()
    worker.take_outcomes()
    worker.close()


def test_nothing_leaks():
    """Objects and descriptors after many managers are those of before."""
    def use():
        with cairn.Manager(small()) as manager:
            keys = manager.keys(prompt(2))
            compute(manager, keys)
            manager.load(keys).wait().blocks.release()
            list(manager.events())
            manager.memory().array().numpy()
        with cairn.Scheduler(config(), device_blocks=64) as scheduler:
            scheduler.manager.status()

    use()
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    threads = len(os.listdir("/proc/self/task"))
    for _ in range(5):
        use()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert len(os.listdir("/proc/self/task")) == threads
