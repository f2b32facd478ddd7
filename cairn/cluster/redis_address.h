// RedisAddress: the parts of a redis:// or rediss:// URL: "redis://10.0.0.7:6379/2". rediss:// is the same over TLS.
//
// A URL has no password, because URLs are shown in logs and status; passwords have a key of their own.
//
// Errors: parse() returns kInvalidArgument and says what a URL looks like.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn {

struct RedisAddress {
  std::string host = {};  // a name, an IPv4 address, or an IPv6 address without brackets
  std::uint16_t port = 6379;
  std::uint32_t database = 0;
  bool has_tls = false;

  [[nodiscard]] static Result<RedisAddress> parse(std::string_view url);
  // "redis://10.0.0.7:6379", with the database if it is not 0.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const RedisAddress&, const RedisAddress&) = default;
};

}  // namespace cairn
