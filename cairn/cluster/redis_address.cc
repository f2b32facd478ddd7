#include "cairn/cluster/redis_address.h"

#include <charconv>
#include <optional>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

bool is_host(std::string_view host) {
  return !host.empty() && host.size() <= 255 &&
         host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%") ==
             std::string_view::npos;
}

}  // namespace

Result<RedisAddress> RedisAddress::parse(std::string_view url) {
  const auto wrong = [](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(why, "; expected an address such as redis://10.0.0.7:6379 or rediss://cache.example.com/1"));
  };
  RedisAddress address;
  std::string_view rest = url;
  if (rest.starts_with("rediss://")) {
    address.has_tls = true;
    rest.remove_prefix(9);
  } else if (rest.starts_with("redis://")) {
    rest.remove_prefix(8);
  } else {
    return wrong("the address does not begin with redis:// or rediss://");
  }
  if (rest.find('@') != std::string_view::npos) {
    return wrong("the address has a user or password in it; use remote.user and remote.password_file");
  }
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos && slash + 1 < rest.size()) {
    const std::optional<std::uint32_t> database = number_in<std::uint32_t>(rest.substr(slash + 1));
    if (!database) {
      return wrong("what follows the / is not the number of a database");
    }
    address.database = *database;
  }
  rest = rest.substr(0, slash);
  std::string_view port;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos || (end + 1 < rest.size() && rest[end + 1] != ':')) {
      return wrong("the IPv6 address has no ]");
    }
    address.host = rest.substr(1, end - 1);
    port = end + 1 < rest.size() ? rest.substr(end + 2) : std::string_view();
    if (end + 1 < rest.size() && port.empty()) {
      return wrong("there is no port after the :");
    }
  } else {
    const std::size_t colon = rest.find(':');
    address.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = rest.substr(colon + 1);
      if (port.empty()) {
        return wrong("there is no port after the :");
      }
    }
  }
  if (!is_host(address.host)) {
    return wrong("there is no host in the address");
  }
  if (!port.empty()) {
    const std::optional<std::uint16_t> number = number_in<std::uint16_t>(port);
    if (!number || *number == 0) {
      return wrong("the port is not a number from 1 to 65535");
    }
    address.port = *number;
  }
  return address;
}

std::string RedisAddress::to_string() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return str_cat(has_tls ? "rediss://" : "redis://", is_v6 ? "[" : "", host, is_v6 ? "]" : "", ":", port,
                 database != 0 ? str_cat("/", database) : "");
}

}  // namespace cairn
