#!/usr/bin/env python3
"""Time to first token on a GPU: KV that is computed, and KV that the connector loads from host memory instead.

A model of Qwen3-8B's shape with random weights (torch and transformers) keeps its KV in pages laid out as in vLLM: for each
layer [block, token, head, K and V, element], 16 tokens a block, blocks at random places. Tables:

    load       a prompt's KV from host memory by one async load, beside one contiguous copy of as many bytes (the limit) and
               beside vLLM's method, one batched copy by the driver with a copy for each page of each layer
    in step    the same KV loaded layer by layer while the model computes the next 2,048 tokens; beside that forward pass
               alone, with the KV on the device, and beside it with one contiguous copy going on
    save       a prefill that saves its own KV beside the same prefill without a connector, in turns

All of it runs with Cairn's default settings, except for the size of host memory. What is loaded is compared byte for byte, and
the token that follows from it with the one that follows from KV that was never moved.
"""

import argparse
import ctypes
import json
import statistics
import sys
import time

import numpy as np
import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

import cairn

PAGE = 16


def shape_of(name):
    shapes = {
        "8b": {"num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32},
        "tiny": {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4},
    }
    heads, size = (8, 128) if name == "8b" else (2, 32)
    return Qwen3Config(
        vocab_size=151936 if name == "8b" else 512,
        num_key_value_heads=heads,
        head_dim=size,
        max_position_embeddings=1 << 18,
        tie_word_embeddings=False,
        **shapes[name],
    )


def now():
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Pages:
    """The engine's KV memory: a tensor for each layer."""

    def __init__(self, config, blocks, device):
        self.config = config
        self.blocks = blocks
        sizes = (blocks, PAGE, config.num_key_value_heads, 2, config.head_dim)
        self.layers = [torch.zeros(sizes, dtype=torch.bfloat16, device=device) for _ in range(config.num_hidden_layers)]
        self.block_bytes = len(self.layers) * self.layers[0][0].numel() * 2

    def places(self, table, first, last):
        """Where the tokens first to last of a request lie."""
        tokens = torch.arange(first, last, device=table.device)
        return table[tokens // PAGE] * PAGE + tokens % PAGE


class PagedCache(DynamicCache):
    """Lets the model's attention write to pages and read from them. `before` and `after` are called for each layer."""

    def __init__(self, pages, table, past, before=None, after=None):
        super().__init__()
        self.pages, self.table, self.past = pages, table, past
        self.before, self.after = before, after

    def get_seq_length(self, layer_idx=0):
        return self.past

    def get_mask_sizes(self, query, layer_idx=0):
        return self.past + (query if isinstance(query, int) else query.shape[0]), 0

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        flat = self.pages.layers[layer_idx].view(-1, *self.pages.layers[layer_idx].shape[2:])
        new = key_states.shape[2]
        if self.before:
            self.before(layer_idx)
        flat[self.pages.places(self.table, self.past, self.past + new)] = torch.stack(
            (key_states[0].transpose(0, 1), value_states[0].transpose(0, 1)), dim=2
        )
        if self.after:
            self.after(layer_idx)
        if self.past == 0:
            return key_states, value_states
        kept = flat[self.pages.places(self.table, 0, self.past)].permute(2, 1, 0, 3)
        return torch.cat((kept[0][None], key_states), dim=2), torch.cat((kept[1][None], value_states), dim=2)


class Model:
    def __init__(self, config, device):
        torch.manual_seed(0)
        previous = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(device):
            self.model = Qwen3ForCausalLM(config).eval()
        torch.set_default_dtype(previous)
        self.device = device

    @torch.inference_mode()
    def forward(self, tokens, cache):
        """The logits of the last token; `tokens` are those that the cache does not have."""
        ids = torch.from_numpy(tokens.astype(np.int64))[None].to(self.device)
        return self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]


class Engine:
    """The pages with both sides of the connector, in one process."""

    def __init__(self, pages, host_size, load_mode):
        config = pages.config
        self.pages, self.iteration, self.requests, self.computed = pages, 0, 0, None
        settings = {
            "block_size": PAGE,
            "model": {
                "name": "ttft",
                "layers": config.num_hidden_layers,
                "heads": config.num_key_value_heads,
                "head_size": config.head_dim,
                "element_type": "bf16",
            },
            "host": {"size": host_size},
        }
        if config.hidden_size < 1024:
            settings["onboard"] = {"weigh": False}  # so small a model computes faster than anything is loaded
        self.scheduler = cairn.Scheduler(settings, device_blocks=pages.blocks, load_mode=load_mode)
        names = {f"model.layers.{i}.self_attn.attn": layer for i, layer in enumerate(pages.layers)}
        self.worker = cairn.Worker(cairn.KvGroup(names, "block token head kv element"), scheduler=self.scheduler)
        self.scheduler.wait_for_ranks(60)

    def close(self):
        self.worker.close()
        self.scheduler.close()

    def stream(self):
        return torch.cuda.current_stream() if torch.cuda.is_available() else None

    def add(self, tokens):
        self.requests += 1
        return self.scheduler.add(f"request-{self.requests}", tokens)

    def build(self, scheduled=()):
        """The metadata of the next iteration; says how long the last one that computed took."""
        self.iteration += 1
        number, seconds = self.computed or (None, None)
        self.computed = None
        return self.scheduler.build(self.iteration, list(scheduled), duration=seconds, duration_of=number)

    def took(self, seconds):
        self.computed = (self.iteration, seconds)

    def wait(self, what):
        limit = time.perf_counter() + 60
        while not (found := getattr(self.scheduler.take_outcomes(), what)):
            if time.perf_counter() > limit:
                sys.exit(f"no request was {what} within a minute")
        self.worker.take_outcomes()
        return found

    def finish(self, request, tokens):
        held = self.scheduler.finish(request, tokens)
        self.worker.bind(self.build())
        self.worker.start_load()
        self.worker.save_step(self.stream())
        if held:
            self.wait("released")
        while self.scheduler.has_work():
            self.worker.bind(self.build())
            self.worker.start_load()
            self.worker.save_step(self.stream())
            self.scheduler.take_outcomes()
            self.worker.take_outcomes()

    def prefill(self, model, tokens, table, is_saved=True, seconds=None):
        """Computes a prompt, unless the pages have it: `seconds` is how long that took. Returns the time and the logits."""
        request = self.add(tokens)
        if self.scheduler.match(request).tokens:
            sys.exit("a new prompt was found in the cache")
        self.scheduler.allocated(request, table.cpu().numpy().astype(np.uint32))
        begin = now()
        metadata = self.build([cairn.Scheduled(request, 0, scheduled_tokens=len(tokens))])
        self.worker.bind(metadata)
        self.worker.start_load(self.stream())
        logits = None
        if seconds is None:
            after = (lambda layer: self.worker.save_layer(layer, self.stream())) if is_saved else None
            logits = model.forward(tokens, PagedCache(self.pages, table, 0, after=after))
            seconds = now() - begin
        else:
            self.worker.save_step(self.stream())
        self.took(seconds)
        self.worker.take_outcomes()
        self.finish(request, len(tokens))
        return seconds, logits

    def measure_link(self, tokens, table):
        """Loads what the tiers give of a prompt. The first loads of a connector are of 16 MiB, to measure the link."""
        for _ in range(5):
            request = self.add(tokens)
            found = self.scheduler.match(request).tokens
            if found == 0:
                break
            self.scheduler.allocated(request, table.cpu().numpy().astype(np.uint32), loaded_tokens=found)
            self.worker.bind(self.build())
            self.worker.start_load(self.stream())
            self.wait("loaded")
            self.finish(request, found)
            if found == len(tokens) - 1:
                return
        status = self.scheduler.status()
        sys.exit(f"{found} of {len(tokens) - 1} tokens are found and worth loading: {self.scheduler.saves()} {status.tiers} {status.links}")

    def load(self, tokens, table):
        """One async load of all but the last token. Returns the times: scheduler, copy, all."""
        begin = now()
        request = self.add(tokens)
        added = time.perf_counter()
        match = self.scheduler.match(request)
        if match.tokens != len(tokens) - 1:
            sys.exit(f"{match.tokens} of {len(tokens) - 1} tokens were matched ({match.when}): {self.scheduler.counts(request)}")
        self.scheduler.allocated(request, table.cpu().numpy().astype(np.uint32), loaded_tokens=match.tokens)
        metadata = self.build()
        built = time.perf_counter()
        self.worker.bind(metadata)
        self.worker.start_load(self.stream())
        missing = self.wait("loaded")[0].missing
        end = time.perf_counter()
        if missing:
            sys.exit(f"{missing} tokens were not loaded")
        return request, {"hash": added - begin, "match": built - added, "load": end - built, "all": end - begin}

    def compute_rest(self, model, request, tokens, past, table):
        """The forward pass of the tokens after `past`, over KV that is there. Returns the time and the logits."""
        begin = now()
        self.worker.bind(self.build([cairn.Scheduled(request, past, scheduled_tokens=len(tokens) - past)]))
        self.worker.start_load(self.stream())
        logits = model.forward(tokens[past:], PagedCache(self.pages, table, past))
        seconds = now() - begin
        self.worker.save_step(self.stream())
        self.took(seconds)
        self.worker.take_outcomes()
        self.finish(request, len(tokens))
        return seconds, logits

    def load_in_step(self, model, tokens, past, table):
        """Loads the first `past` tokens while the model computes the others; without a model, only loads.

        Returns when the first and the last layer came, and the end of the forward pass.
        """
        begin = now()
        arrived = []

        def before(layer):
            self.worker.wait_for_layer(layer)
            arrived.append(time.perf_counter() - begin)

        request = self.add(tokens)
        match = self.scheduler.match(request)
        if match.tokens != past:
            sys.exit(f"{match.tokens} of {past} tokens were matched ({match.when})")
        self.scheduler.allocated(request, table.cpu().numpy().astype(np.uint32), loaded_tokens=past)
        self.worker.bind(self.build([cairn.Scheduled(request, past, scheduled_tokens=len(tokens) - past)]))
        self.worker.start_load(self.stream())
        logits = None
        if model:
            logits = model.forward(tokens[past:], PagedCache(self.pages, table, past, before=before))
        else:
            for layer in range(len(self.pages.layers)):
                before(layer)
        seconds = now() - begin
        self.worker.save_step(self.stream())
        self.took(seconds)
        if self.worker.take_outcomes().failed_blocks:
            sys.exit("blocks of an in-step load failed")
        self.finish(request, len(tokens) if model else past)
        return {"first": arrived[0], "last": arrived[-1], "all": seconds}, logits


class Copies:
    """Copies without Cairn, from pinned memory."""

    class Attributes(ctypes.Structure):
        _fields_ = [(name, ctypes.c_int) for name in ("order", "source", "source_id", "target", "target_id", "flags")]

    def __init__(self, pages, most_bytes):
        self.pages = pages
        self.rows = min(most_bytes, 4 << 30) // pages.block_bytes
        self.source = torch.empty(self.rows * pages.block_bytes, dtype=torch.int8, pin_memory=True)
        self.target = torch.empty_like(self.source, device="cuda")
        self.stream = torch.cuda.Stream()
        self.runtime = ctypes.CDLL("libcudart.so.13")

    def start(self, count):
        """Starts one copy of so many bytes; beyond the memory of this object, several large ones."""
        with torch.cuda.stream(self.stream):
            while count > 0:
                part = min(count, self.source.numel())
                self.target[:part].copy_(self.source[:part], non_blocking=True)
                count -= part

    def contiguous(self, count):
        begin = now()
        self.start(count)
        return now() - begin

    def batched(self, table):
        """vLLM's method: a copy for each page of each layer, in one call of the driver."""
        page = self.pages.block_bytes // len(self.pages.layers)
        blocks = table.cpu().numpy().astype(np.uint64)
        rows = np.arange(len(blocks), dtype=np.uint64) % self.rows
        targets = np.concatenate([layer.data_ptr() + blocks * page for layer in self.pages.layers]).astype(np.uint64)
        sources = np.concatenate(
            [self.source.data_ptr() + rows * self.pages.block_bytes + i * page for i in range(len(self.pages.layers))]
        ).astype(np.uint64)
        sizes = np.full(len(targets), page, dtype=np.uint64)
        attributes, index = self.Attributes(order=1), ctypes.c_size_t(0)
        begin = now()
        status = self.runtime.cudaMemcpyBatchAsync(
            ctypes.c_void_p(targets.ctypes.data),
            ctypes.c_void_p(sources.ctypes.data),
            ctypes.c_void_p(sizes.ctypes.data),
            ctypes.c_size_t(len(targets)),
            ctypes.byref(attributes),
            ctypes.byref(index),
            ctypes.c_size_t(1),
            ctypes.c_void_p(self.stream.cuda_stream),
        )
        if status != 0:
            sys.exit(f"cudaMemcpyBatchAsync failed with {status}")
        self.stream.synchronize()
        return time.perf_counter() - begin


class Bench:
    def __init__(self, options):
        self.options = options
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.config = shape_of(options.shape)
        self.model = Model(self.config, self.device)
        self.blocks_each = (max(options.tokens) + options.rest) // PAGE + 1
        self.pages = Pages(self.config, 2 * self.blocks_each, self.device)
        self.random = np.random.default_rng(1)
        places = torch.from_numpy(self.random.permutation(2 * self.blocks_each)).to(self.device)
        self.tables = places[: self.blocks_each], places[self.blocks_each :]
        self.host_size = int(self.blocks_each * self.pages.block_bytes * 1.5)
        self.copies = Copies(self.pages, max(options.tokens) // PAGE * self.pages.block_bytes) if self.device == "cuda" else None
        self.rows = []
        for _ in range(3):  # kernels are chosen and memory is taken
            self.model.forward(self.prompt(256), PagedCache(self.pages, self.tables[0], 0))

    def prompt(self, count):
        return self.random.integers(0, self.config.vocab_size, count, dtype=np.uint32)

    def say(self, table, **values):
        self.rows.append({"table": table, **values})
        text = "  ".join(f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items())
        print(f"{table:8} {text}", flush=True)

    def median(self, measure):
        return statistics.median(measure() for _ in range(self.options.repeats))

    def clear(self, table):
        for layer in self.pages.layers:
            layer[table] = 0

    def check_bytes(self, count):
        first, second = (table[: count // PAGE] for table in self.tables)
        if not all(torch.equal(layer[first], layer[second]) for layer in self.pages.layers):
            sys.exit("a load gave other bytes than were saved")

    def check_token(self, logits, expected):
        """The model's kernels do not give the same bits each time: the token counts."""
        if logits.argmax() != expected.argmax():
            sys.exit(f"loaded KV gave another token; logits differ by up to {(logits - expected).abs().max()}")

    def loads(self):
        engine = Engine(self.pages, self.host_size, "async")
        for count in self.options.tokens:
            tokens = self.prompt(count + 1)
            first, second = (table[: count // PAGE + 1] for table in self.tables)
            prefill, _ = engine.prefill(self.model, tokens, first)
            engine.measure_link(tokens, second)
            expected = self.model.forward(tokens[-1:], PagedCache(self.pages, first, count))
            times, forwards = [], []
            for _ in range(self.options.repeats):
                self.clear(second)
                request, spent = engine.load(tokens, second)
                times.append(spent)
                self.check_bytes(count)
                forward, logits = engine.compute_rest(self.model, request, tokens, count, second)
                forwards.append(forward)
                self.check_token(logits, expected)
            spent = {name: statistics.median(each[name] for each in times) for name in times[0]}
            size = count // PAGE * self.pages.block_bytes
            values = {
                "tokens": count,
                "prefill_ms": 1e3 * prefill,
                "ttft_ms": 1e3 * (spent["all"] + statistics.median(forwards)),
                "hash_ms": 1e3 * spent["hash"],
                "match_ms": 1e3 * spent["match"],
                "load_ms": 1e3 * spent["load"],
            }
            if self.copies:
                limit = self.median(lambda size=size: self.copies.contiguous(size))
                batched = self.median(lambda second=second: self.copies.batched(second[:-1]))
                values |= {
                    "contiguous_ms": 1e3 * limit,
                    "percent": 100 * limit / spent["load"],
                    "batched_ms": 1e3 * batched,
                    "batched_percent": 100 * limit / batched,
                }
            self.say("load", **values)
        engine.close()

    def in_step(self):
        engine = Engine(self.pages, self.host_size, "in_step")
        for count in self.options.tokens:
            prompt = self.prompt(count)
            first, second = (table[: (count + self.options.rest) // PAGE] for table in self.tables)
            engine.prefill(self.model, prompt, first[: count // PAGE])
            engine.measure_link(np.append(prompt, prompt[:1]), second[: count // PAGE + 1])
            times, alone, waits, beside = [], [], [], []
            for _ in range(self.options.repeats):
                tokens = np.concatenate((prompt, self.prompt(self.options.rest)))
                begin = now()
                expected = self.model.forward(tokens[count:], PagedCache(self.pages, first, count))
                alone.append(now() - begin)
                if self.copies:
                    begin = now()
                    self.copies.start(count // PAGE * self.pages.block_bytes)
                    self.model.forward(tokens[count:], PagedCache(self.pages, first, count))
                    torch.cuda.current_stream().synchronize()
                    beside.append(time.perf_counter() - begin)
                waits.append(engine.load_in_step(None, tokens, count, second)[0]["last"])
                self.clear(second)
                spent, logits = engine.load_in_step(self.model, tokens, count, second)
                times.append(spent)
                self.check_bytes(count)
                self.check_token(logits, expected)
            spent = {name: statistics.median(each[name] for each in times) for name in times[0]}
            self.say(
                "in step",
                tokens=count,
                rest=self.options.rest,
                load_alone_ms=1e3 * statistics.median(waits),
                first_layer_ms=1e3 * spent["first"],
                ttft_ms=1e3 * spent["all"],
                forward_ms=1e3 * statistics.median(alone),
                **({"beside_a_copy_ms": 1e3 * statistics.median(beside)} if beside else {}),
            )
        engine.close()

    def saves(self):
        engine = Engine(self.pages, self.host_size, "async")
        for count in self.options.tokens:
            table = self.tables[0][: count // PAGE]
            without, with_saves, before = [], [], engine.scheduler.saves().saved
            for _ in range(self.options.repeats if count <= 32768 else 1):
                tokens = self.prompt(count)
                begin = now()
                self.model.forward(tokens, PagedCache(self.pages, table, 0))
                without.append(now() - begin)
                with_saves.append(engine.prefill(self.model, self.prompt(count), table)[0])
            saved = (engine.scheduler.saves().saved - before) / len(without)
            self.say(
                "save",
                tokens=count,
                prefill_ms=1e3 * statistics.median(without),
                saving_ms=1e3 * statistics.median(with_saves),
                percent_more=100 * statistics.median(b / a - 1 for a, b in zip(without, with_saves, strict=True)),
                blocks=count // PAGE,
                saved=saved,
            )
        print(f"saves: {engine.scheduler.saves()}")
        engine.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 16384, 32768, 65536, 131072], help="lengths of prompts, in whole blocks")
    parser.add_argument("--shape", choices=["8b", "tiny"], default="8b", help="tiny: to try the program without a GPU")
    parser.add_argument("--rest", type=int, default=2048, help="tokens that are computed beside an in-step load")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["loads", "in_step", "saves"], help="one table")
    parser.add_argument("--json", metavar="FILE", help="writes the figures for programs")
    options = parser.parse_args()
    bench = Bench(options)
    for table in [options.only] if options.only else ["loads", "in_step", "saves"]:
        getattr(bench, table)()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name() if bench.device == "cuda" else "cpu", "rows": bench.rows}, file, indent=1)


if __name__ == "__main__":
    main()
