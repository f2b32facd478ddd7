#!/usr/bin/env python3
"""An asyncio server on a manager: it caches the KV of prompts and awaits loads, so that one loop serves many clients.

    async_server.py [PORT]        serves until Ctrl-C; send lines of JSON, get lines of JSON:
                                  {"tokens": [1, 2, ...]} -> {"cached": 32, "computed": 8}
    async_server.py --self-test   serves a few hundred requests of its own, and checks the answers

"Computing" is writing numbers into device blocks. A client that disconnects cancels its load.
"""

import argparse
import asyncio
import json

import numpy as np

import cairn

BLOCK = 16
CONFIG = {
    "block_size": BLOCK,
    "model": {"name": "server", "layers": 2, "heads": 2, "head_size": 32, "element_type": "f32"},
    "device": {"blocks": 256, "memory": "system"},
    "host": {"blocks": 2048},
    "onboard": {"weigh": False},
}


class Server:
    def __init__(self, manager: cairn.Manager) -> None:
        self.manager = manager
        self.memory = manager.memory("device").array().numpy()
        self.room = asyncio.Semaphore(8)  # requests that hold device blocks at once

    def compute(self, tokens: np.ndarray, block_ids: list[int]) -> None:
        for i, block_id in enumerate(block_ids):
            self.memory[block_id] = tokens[i * BLOCK : (i + 1) * BLOCK].astype(np.float32)[None, None, :, None, None]

    async def answer(self, tokens: np.ndarray) -> dict[str, int]:
        keys = self.manager.keys(tokens)
        async with self.room:
            outcome = await self.manager.load(keys)  # other clients are served meanwhile
            with outcome.blocks as cached:
                for i, block_id in enumerate(cached.block_ids):
                    want = tokens[i * BLOCK : (i + 1) * BLOCK].astype(np.float32)
                    assert (self.memory[block_id][1, 1, :, 0, 0] == want).all(), "a block holds other tokens"
                if len(keys) > len(cached):
                    new = self.manager.device.allocate(len(keys) - len(cached))
                    self.compute(tokens[len(cached) * BLOCK :], new.block_ids)
                    new.complete(keys[len(cached) :]).register().release()
                return {"cached": len(cached) * BLOCK, "computed": len(tokens) - len(cached) * BLOCK}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                answer = await self.answer(np.array(json.loads(line)["tokens"], dtype=np.uint32))
            except (ValueError, KeyError, cairn.Error) as error:
                answer = {"error": str(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()


async def client(port: int, seed: int, requests: int) -> int:
    """Continues a conversation; returns how many tokens were cached."""
    random = np.random.default_rng(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    tokens = [7] * (4 * BLOCK)  # shared by all clients
    cached = 0
    for _ in range(requests):
        tokens += random.integers(0, 1000, BLOCK).tolist()
        writer.write(json.dumps({"tokens": tokens}).encode() + b"\n")
        answer = json.loads(await reader.readline())
        assert answer["cached"] + answer["computed"] == len(tokens), answer
        cached += answer["cached"]
    writer.write(b"nonsense\n")
    assert "error" in json.loads(await reader.readline())
    writer.close()
    return cached


async def main(port: int, self_test: bool) -> None:
    with cairn.Manager(CONFIG) as manager:
        server = await asyncio.start_server(Server(manager).serve, "127.0.0.1", port)
        port = server.sockets[0].getsockname()[1]
        async with server:
            if not self_test:
                print(f"listening on 127.0.0.1:{port}")
                await server.serve_forever()
            cached = sum(await asyncio.gather(*(client(port, seed, requests=16) for seed in range(20))))
        asked = 20 * sum((5 + i) * BLOCK for i in range(16))
        assert cached > asked // 2, (cached, asked)
        print(f"{cached} of {asked} tokens were cached")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, nargs="?", default=0)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    try:
        asyncio.run(main(arguments.port, arguments.self_test))
    except KeyboardInterrupt:
        pass
