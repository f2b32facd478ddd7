// The messages between the tiny engine and its rank processes over a socket pair: a step to the rank, an answer back.
// Plain structs as bytes, because both sides are the same build.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cairn/layout/block_layout.h"
#include "cairn/layout/rank_grid.h"

namespace cairn::testing {

// The model, and the ranks that share it.
struct TinyGrid {
  RankGrid ranks = 1;
  std::uint32_t heads = 8;  // of the model; fewer than tensor ranks: those of a head hold the same
};
inline constexpr std::uint32_t kTinyPage = 4;
inline constexpr std::uint32_t kTinyLayers = 2;
inline constexpr std::uint32_t kTinyDeviceBlocks = 64;
inline KvShape tiny_shape(const TinyGrid& grid) {
  return {
      .layers = kTinyLayers, .kv = 2, .page_size = kTinyPage, .heads = grid.heads, .head_size = 8, .element_bits = 16};
}
// The contents of a rank's part of a block; the same for ranks that hold the same part.
inline std::uint64_t seed_of_part(std::uint64_t block_seed, const TinyGrid& grid, std::uint32_t rank) {
  return block_seed * 8 + rank - RankShare::make(grid.ranks, rank, tiny_shape(grid))->heads.replica;
}

// A device block and the seed of its contents.
struct TinyBlock {
  std::uint32_t block = 0;
  std::uint32_t unused = 0;
  std::uint64_t seed = 0;
};

struct TinyStep {
  std::vector<std::byte> metadata;
  std::vector<TinyBlock> check;  // loaded blocks: they hold this before the step
  std::vector<TinyBlock> fill;   // computed in this step
};

struct TinyAnswer {
  std::uint32_t wrong = 0;    // of the checked blocks
  std::uint32_t failed = 0;   // blocks that the worker side reported as failed
  std::uint32_t unheard = 0;  // loads and saves that the worker side expects and has not reported yet
};

// All of the bytes; false if the other side is gone.
inline bool write_all(int fd, const void* bytes, std::size_t count) {
  const auto* at = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t written = ::send(fd, at, count, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    at += written;
    count -= static_cast<std::size_t>(written);
  }
  return true;
}
inline bool read_all(int fd, void* bytes, std::size_t count) {
  auto* at = static_cast<std::byte*>(bytes);
  while (count > 0) {
    const ssize_t got = ::read(fd, at, count);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

template <typename T>
bool send_vector(int fd, const std::vector<T>& items) {
  const std::uint64_t count = items.size();
  return write_all(fd, &count, sizeof count) && (count == 0 || write_all(fd, items.data(), count * sizeof(T)));
}
template <typename T>
bool receive_vector(int fd, std::vector<T>& items) {
  std::uint64_t count = 0;
  if (!read_all(fd, &count, sizeof count)) {
    return false;
  }
  items.resize(count);
  return count == 0 || read_all(fd, items.data(), count * sizeof(T));
}

inline bool send_step(int fd, const TinyStep& step) {
  return send_vector(fd, step.metadata) && send_vector(fd, step.check) && send_vector(fd, step.fill);
}
inline bool receive_step(int fd, TinyStep& step) {
  return receive_vector(fd, step.metadata) && receive_vector(fd, step.check) && receive_vector(fd, step.fill);
}

}  // namespace cairn::testing
