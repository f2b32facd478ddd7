"""vLLM's own host tier on a machine without a GPU: its worker copies with CUDA alone, so this one copies with the CPU."""

from __future__ import annotations

import time
from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CpuWorker(OffloadingWorker):
    """Copies at once. Chunks are single blocks."""

    def __init__(self, caches: Any, region: SharedOffloadRegion) -> None:
        self._region = region
        self._groups = caches.group_data_refs
        self._device = [each.tensor.view(torch.int8).view(-1, each.page_size_bytes) for each in caches.tensors]
        self._host = [region.create_next_worker_view(each.page_size_bytes) for each in caches.tensors]
        self._finished: list[TransferResult] = []

    def _copy(self, job: int, device: Any, host: Any, to_host: bool) -> bool:
        began, copied, at = time.perf_counter(), 0, 0
        for size, refs in zip(device.group_sizes, self._groups, strict=True):
            for here, there in zip(device.block_ids[at : at + size], host.block_ids[at : at + size], strict=True):
                for ref in refs:
                    ours, theirs = self._device[ref.tensor_idx][here], self._host[ref.tensor_idx][there]
                    (theirs if to_host else ours).copy_(ours if to_host else theirs)
                    copied += ref.page_size_bytes
            at += size
        self._finished.append(TransferResult(job, True, copied, time.perf_counter() - began))
        return True

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, dst_spec, src_spec, False)

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        pass

    def shutdown(self) -> None:
        self._host.clear()
        self._region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):
    """TieringOffloadingSpec with the worker above."""

    def get_worker(self, kv_caches: Any) -> OffloadingWorker:
        region = SharedOffloadRegion(
            engine_id=self._engine_id,
            num_chunks=self.num_chunks,
            rank=self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        return CpuWorker(kv_caches, region)
