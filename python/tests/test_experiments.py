"""Traces, hit rates and replays."""

import _thread
import gzip
import json
import signal
import subprocess
import sys
import threading
import time

import pytest

import cairn


@pytest.fixture(scope="module")
def rows():
    return cairn.traces.generate("chat", requests=300, seed=3)


def test_generated_traces_repeat(rows):
    again = cairn.traces.generate("chat", requests=300, seed=3)
    assert [row.hash_ids for row in rows] == [row.hash_ids for row in again] and len(rows) == 300
    with pytest.raises(cairn.InvalidArgumentError, match="expected chat"):
        cairn.traces.generate("chatter")
    with pytest.raises(cairn.InvalidArgumentError):
        cairn.traces.generate(requests=0)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_a_trace_is_read_as_it_was_written(tmp_path, rows, name):
    path = tmp_path / name
    assert cairn.traces.write(path, rows) == 300
    read = list(cairn.traces.read(path))
    assert [(row.hash_ids, row.timestamp_ms, row.input_tokens, row.output_tokens, row.session) for row in read] == [
        (row.hash_ids, row.timestamp_ms, row.input_tokens, row.output_tokens, row.session) for row in rows
    ]


def test_bad_rows_are_counted(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"hash_ids": [1]}\nnonsense\n{"hash_ids": [1, 2]}\n')
    reader = cairn.traces.read(path)
    assert [row.hash_ids for row in reader] == [[1], [1, 2]]
    assert reader.bad_rows == 1 and reader.first_bad_row.startswith("line 2")
    with pytest.raises(cairn.Error):
        cairn.traces.read(tmp_path / "missing")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b'{"hash_ids": [1]}\n' * 100_000)[:-200])
    with pytest.raises(cairn.CorruptError):
        list(cairn.traces.read(broken))


def test_hitrate_of_rows_and_of_a_file_agree(tmp_path, rows):
    path = tmp_path / "trace.jsonl"
    cairn.traces.write(path, rows)
    of_rows = cairn.hitrate(rows, policies=["lru", "opt"], capacities=["5%", 64])
    of_file = cairn.hitrate(path, policies=["lru", "opt"], capacities=["5%", 64])
    assert [row.hit_ratio for row in of_rows] == [row.hit_ratio for row in of_file]
    assert [(row.policy, row.capacity) for row in of_rows] == [("lru", "5%"), ("lru", "64"), ("opt", "5%"), ("opt", "64")]
    assert of_rows[0].hit_ratio <= of_rows[2].hit_ratio and of_rows.best().policy == "lru"
    assert len(of_rows[1:3]) == 2 and of_rows.to_dict()[0]["policy"] == "lru"
    tiered = cairn.hitrate(rows, policies="lru", capacities=["2%"], tiers=["20%"], admit="all", hints=True)
    assert tiered[0].tiers[0].hits > 0 and tiered.to_dict()[0]["tiers"][0]["written"] > 0
    for wrong in ({"policies": "mru"}, {"capacities": ["x"]}, {"admit": "none"}, {"block_size": 0}, {"capacities": []}):
        with pytest.raises(cairn.InvalidArgumentError):
            cairn.hitrate(rows, **wrong)


def test_hitrate_agrees_with_the_command(tmp_path, rows, cairn_command):
    path = tmp_path / "trace.jsonl"
    cairn.traces.write(path, rows)
    words = [cairn_command, "hitrate", path, "--policy", "lru", "--capacity", "5%,64", "--json", "-"]
    printed = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["rows"]
    rows = cairn.hitrate(path, policies="lru", capacities=["5%", 64])
    assert [row.hit_ratio for row in rows] == pytest.approx([row["hit_ratio"] for row in printed], rel=1e-5)


def test_replay(tmp_path, rows):
    result = cairn.replay(rows, blocks=4096, host_blocks=8192, policy="lru")
    assert result.complete and result.completed_requests == 300 and 0 < result.hit_ratio < 1
    assert result.metrics["mean_ttft_ms"] > 0 and result.duration_ms > 0 and result.config["policy"] == "lru"
    assert result.tiers[0]["tier"] == "G2" and set(result.hit_ratio_by_tier) == {"G1", "G2"}
    assert json.dumps(result.to_dict()) and len(result.series) > 1 and "300 requests" in repr(result)
    assert cairn.replay(rows, blocks=4096, prefix_caching=False).hit_ratio == 0
    sized = cairn.replay(rows, engine="h200-8b", host_size="64GB", settings={"host.policy": "lru"})
    assert sized.config["engine"] == "h200-8b" and sized.config["host_blocks"] == 6781
    assert sized.config["manager"]["host.policy"] == "lru"
    with pytest.raises(cairn.InvalidArgumentError, match="policy"):
        cairn.replay(rows, policy="mru")
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nonsense\n")
    with pytest.raises(cairn.CorruptError):
        cairn.replay(bad, strict=True)
    with pytest.raises(cairn.Error):
        cairn.replay(tmp_path / "missing")


def test_results_as_data_frames(rows):
    pandas = pytest.importorskip("pandas")
    frame = cairn.hitrate(rows, policies=["lru", "fifo"], capacities=["5%"]).to_pandas()
    assert list(frame["policy"]) == ["lru", "fifo"] and isinstance(frame, pandas.DataFrame)
    assert "ttft_ms" in cairn.replay(rows).to_pandas().columns


def test_other_threads_run_meanwhile(rows):
    many = cairn.traces.generate("agents", requests=2000)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            stop.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.monotonic()
    cairn.hitrate(many, policies="all", capacities=["1%", "5%", "20%"])
    end = time.monotonic()
    stop.set()
    thread.join()
    assert sum(begin < tick < end for tick in ticks) >= (end - begin) * 20


def test_control_c_stops_a_replay():
    # A shell that starts the tests in the background has Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    many = cairn.traces.generate("agents", requests=20_000)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(100):
            cairn.replay(many)
    timer.join()
    signal.signal(signal.SIGINT, before)


def test_import_is_fast_and_light():
    # The time of this process on the processor: tests share the machine with others.
    words = (
        "import sys, time; t = time.process_time(); import cairn; "
        "print(time.process_time() - t, 'numpy' in sys.modules, 'torch' in sys.modules)"
    )
    times = []
    for _ in range(5):
        seconds, numpy, torch = subprocess.run(
            [sys.executable, "-c", words], check=True, capture_output=True, text=True
        ).stdout.split()
        assert (numpy, torch) == ("False", "False")
        times.append(float(seconds))
    assert min(times) < 0.05
