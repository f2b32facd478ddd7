// The kernels: copy blocks between any two layouts and add up their checksums on the way.
//
// Each thread moves kUnroll units at a time, so that enough reads are in flight to hide the memory's latency with few
// multiprocessors. A warp is always within one block, whose sums it keeps in registers as long as it stays there; the
// last group of threads to finish hands the sums to the host and leaves zeros for the next launch.
#include "cairn/transfer/block_copy.h"

namespace {

using cairn::BlockSums;
using cairn::gpu::Launch;
using cairn::gpu::Pair;
using cairn::gpu::Unit;

constexpr int kUnroll = 4;
constexpr unsigned kWarp = 32;
constexpr unsigned kFullWarp = 0xFFFFFFFFU;

template <typename Word>
struct Wide {  // 16 or 8 bytes at once
  using Value = Word;
  __device__ static Value load(const Unit& unit) { return __ldcs(reinterpret_cast<const Word*>(unit.source)); }
  __device__ static void store(const Unit& unit, const Value& value) {
    __stcs(reinterpret_cast<Word*>(unit.destination), value);
  }
};

__device__ void add(BlockSums& sums, const Unit& unit, const ulonglong2& value) {
  cairn::gpu::add_word(sums, value.x, unit.word);
  cairn::gpu::add_word(sums, value.y, unit.word + 1);
}
__device__ void add(BlockSums& sums, const Unit& unit, unsigned long long value) {
  cairn::gpu::add_word(sums, value, unit.word);
}

struct Bytewise {  // up to 8 bytes of a row of any length and alignment
  using Value = unsigned long long;
  __device__ static Value load(const Unit& unit) {
    Value value = 0;
    for (unsigned i = 0; i < unit.bytes; ++i) {
      value |= Value{reinterpret_cast<const unsigned char*>(unit.source)[i]} << (8 * i);
    }
    return value;
  }
  __device__ static void store(const Unit& unit, Value value) {
    for (unsigned i = 0; i < unit.bytes; ++i) {
      reinterpret_cast<unsigned char*>(unit.destination)[i] = static_cast<unsigned char>(value >> (8 * i));
    }
  }
};

__device__ void add_up(BlockSums* total, BlockSums& own) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    own.products += __shfl_down_sync(kFullWarp, own.products, distance);
    own.words += __shfl_down_sync(kFullWarp, own.words, distance);
  }
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&total->products), own.products);
    atomicAdd(reinterpret_cast<unsigned long long*>(&total->words), own.words);
  }
  own = {};
}

template <typename Access>
__device__ void copy(const Launch& launch) {
  constexpr unsigned kTile = kWarp * kUnroll;
  const unsigned tiles = (launch.shape.units + kTile - 1) / kTile;
  const unsigned all = tiles * launch.blocks;
  const unsigned warps = gridDim.x * blockDim.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  BlockSums own;
  unsigned block = 0;
  for (unsigned t = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp; t < all; t += warps) {
    if (t / tiles != block) {
      if (launch.sums != nullptr) {
        add_up(&launch.sums[block], own);
      }
      block = t / tiles;
    }
    const Pair pair = launch.pairs[block];
    const unsigned first = (t - block * tiles) * kTile + lane;
    Unit units[kUnroll];
    typename Access::Value values[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const unsigned unit = first + i * kWarp;
      if (unit < launch.shape.units) {
        units[i] = cairn::gpu::locate(launch, launch.boxes, pair, unit);
        values[i] = Access::load(units[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * kWarp < launch.shape.units) {
        Access::store(units[i], values[i]);
        if (launch.sums != nullptr) {
          add(own, units[i], values[i]);
        }
      }
    }
  }
  if (launch.sums == nullptr) {
    return;
  }
  add_up(&launch.sums[block], own);
  // The last group to come here sees the sums of all.
  __threadfence();
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(launch.arrivals, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    __threadfence();
    for (unsigned i = threadIdx.x; i < launch.blocks; i += blockDim.x) {
      volatile BlockSums* const sums = &launch.sums[i];
      launch.sums_out[i].products = sums->products;
      launch.sums_out[i].words = sums->words;
      sums->products = 0;
      sums->words = 0;
    }
    if (threadIdx.x == 0) {
      *launch.arrivals = 0;
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(512) cairn_copy_16(const __grid_constant__ Launch launch) {
  copy<Wide<ulonglong2>>(launch);
}
extern "C" __global__ void __launch_bounds__(512) cairn_copy_8(const __grid_constant__ Launch launch) {
  copy<Wide<unsigned long long>>(launch);
}
extern "C" __global__ void __launch_bounds__(512) cairn_copy_1(const __grid_constant__ Launch launch) {
  copy<Bytewise>(launch);
}
