#include "cairn/cluster/redis_slots.h"

#include <charconv>

namespace cairn {

namespace {

std::optional<std::uint16_t> small_number(std::string_view text) {
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

std::uint16_t redis_slot(std::string_view key) {
  if (const std::size_t open = key.find('{'); open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  std::uint32_t crc = 0;
  for (const char c : key) {
    crc ^= static_cast<std::uint32_t>(static_cast<unsigned char>(c)) << 8;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 0x8000U) != 0 ? (crc << 1) ^ 0x1021U : crc << 1;
    }
  }
  return static_cast<std::uint16_t>(crc & (kRedisSlots - 1U));
}

std::optional<RedisRedirection> parse_redirection(std::string_view error) {
  RedisRedirection redirection;
  if (error.starts_with("MOVED ")) {
    redirection.is_moved = true;
    error.remove_prefix(6);
  } else if (error.starts_with("ASK ")) {
    error.remove_prefix(4);
  } else {
    return std::nullopt;
  }
  const std::size_t space = error.find(' ');
  const std::size_t colon = error.rfind(':');  // an IPv6 address has several
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) {
    return std::nullopt;
  }
  const std::optional<std::uint16_t> slot = small_number(error.substr(0, space));
  const std::optional<std::uint16_t> port = small_number(error.substr(colon + 1));
  if (!slot || *slot >= kRedisSlots || !port || *port == 0) {
    return std::nullopt;
  }
  redirection.slot = *slot;
  redirection.node = {.host = std::string(error.substr(space + 1, colon - space - 1)), .port = *port};
  return redirection;
}

Result<std::vector<RedisSlotRange>> parse_slots(const RespValue& reply) {
  using Kind = RespHead::Kind;
  const auto wrong = [] { return fail(ErrorCode::kCorrupt, "the server's answer to CLUSTER SLOTS cannot be read"); };
  if (reply.kind != Kind::kArray) {
    return wrong();
  }
  std::vector<RedisSlotRange> ranges;
  for (const RespValue& range : reply.elements) {
    if (range.kind != Kind::kArray || range.elements.size() < 3) {
      return wrong();
    }
    const RespValue& first = range.elements[0];
    const RespValue& last = range.elements[1];
    const RespValue& node = range.elements[2];
    if (first.kind != Kind::kNumber || last.kind != Kind::kNumber || first.number < 0 || first.number > last.number ||
        last.number >= kRedisSlots || node.kind != Kind::kArray || node.elements.size() < 2 ||
        node.elements[1].kind != Kind::kNumber || node.elements[1].number <= 0 || node.elements[1].number > 65535) {
      return wrong();
    }
    ranges.push_back(
        {.first = static_cast<std::uint16_t>(first.number),
         .last = static_cast<std::uint16_t>(last.number),
         .primary = {.host = node.elements[0].text, .port = static_cast<std::uint16_t>(node.elements[1].number)}});
  }
  return ranges;
}

}  // namespace cairn
