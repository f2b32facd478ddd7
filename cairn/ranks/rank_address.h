// RankAddress: where a leader is reached: "unix:/run/cairn/leader.sock" or "tcp:127.0.0.1:7070".
//
// Threads:  a plain value.
// Fails:    parse(): anything else, a path longer than a socket's may be, a port that is none. Port 0 is any free one; the
//           group says which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "cairn/base/result.h"

namespace cairn {

struct RankAddress {
  struct Unix {
    std::string path;
    friend bool operator==(const Unix&, const Unix&) = default;
  };
  struct Tcp {
    std::string host;
    std::uint16_t port = 0;
    friend bool operator==(const Tcp&, const Tcp&) = default;
  };
  std::variant<Unix, Tcp> place;

  [[nodiscard]] static Result<RankAddress> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const RankAddress&, const RankAddress&) = default;
};

}  // namespace cairn
