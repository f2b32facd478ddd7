// Which node of a Redis cluster has a key: slots, the map of slots, and redirections.
//
// Thread safety: plain functions and values.
// Errors: decoders return kCorrupt, or std::nullopt for an error of the server that is no redirection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/cluster/resp.h"

namespace cairn {

inline constexpr std::uint16_t kRedisSlots = 16384;

// CRC-16/XMODEM of the key, or of what is between the first { and the next } of it, modulo 16384.
[[nodiscard]] std::uint16_t redis_slot(std::string_view key);

struct RedisNodeName {
  std::string host = {};  // empty: the one that was asked
  std::uint16_t port = 0;
  friend auto operator<=>(const RedisNodeName&, const RedisNodeName&) = default;
};

// "MOVED 3999 10.0.0.8:6381" or "ASK 3999 10.0.0.8:6381"
struct RedisRedirection {
  bool is_moved = false;  // for good; otherwise only this request
  std::uint16_t slot = 0;
  RedisNodeName node = {};
};
[[nodiscard]] std::optional<RedisRedirection> parse_redirection(std::string_view error);

// The answer to CLUSTER SLOTS.
struct RedisSlotRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  RedisNodeName primary = {};
};
[[nodiscard]] Result<std::vector<RedisSlotRange>> parse_slots(const RespValue& reply);

}  // namespace cairn
