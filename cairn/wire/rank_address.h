// RankAddress: where a leader listens: "unix:/run/cairn/leader.sock" or "tcp:127.0.0.1:7070".
//
// Errors: parse() refuses any other form, a path that is too long for a Unix socket, and an invalid port. Port 0 means any
//         free port; Leader::address() says which one it is.
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
