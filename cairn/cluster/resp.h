// RESP2, the protocol of Redis and Valkey: commands out, replies in. Every server speaks it without a handshake, so RESP3 is not
// needed. Commands are written as pieces, so that the bytes of a block go from where they are to the socket.
//
// Thread safety: plain functions and values.
// Errors: kCorrupt for bytes that no server sends, and for replies beyond the limits below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"

namespace cairn {

// Appends "*n\r\n" and the arguments, each with its length in front.
void append_resp_command(std::string& to, std::initializer_list<std::string_view> arguments);
// Appends the beginning of a command of `arguments` arguments in all, of which these come first.
void append_resp_start(std::string& to, std::size_t arguments, std::initializer_list<std::string_view> first);
// Appends "$n\r\n": an argument of so many bytes follows, and then "\r\n".
void append_resp_length(std::string& to, std::size_t bytes);
void append_resp_argument(std::string& to, std::string_view argument);

// The first line of a reply.
struct RespHead {
  enum class Kind : std::uint8_t { kStatus, kError, kNumber, kBulk, kArray };
  Kind kind = Kind::kStatus;
  std::int64_t number =
      0;  // kNumber; kBulk: bytes that follow, and then "\r\n"; kArray: elements; -1: there is no value
  std::string_view text = {};  // kStatus, kError; points into the input
  std::size_t bytes = 0;       // of the line, with its end
};
inline constexpr std::size_t kLongestRespLine = 4096;
inline constexpr std::int64_t kLargestBulk = std::int64_t{512} << 20;  // the limit of Redis
// std::nullopt if the line is not complete yet.
[[nodiscard]] Result<std::optional<RespHead>> read_resp_head(std::string_view in);

// A whole reply, for those that are small.
struct RespValue {
  RespHead::Kind kind = RespHead::Kind::kStatus;
  bool is_null = false;
  std::int64_t number = 0;
  std::string text = {};  // kStatus, kError, kBulk
  std::vector<RespValue> elements = {};
};
struct RespLimits {
  std::size_t bytes = std::size_t{4} << 20;
  std::size_t elements = 262'144;  // in all
  std::uint32_t depth = 8;
};
struct DecodedResp {
  RespValue value;
  std::size_t bytes = 0;
};
// std::nullopt if the reply is not complete yet.
[[nodiscard]] Result<std::optional<DecodedResp>> decode_resp(std::string_view in, const RespLimits& limits = {});

}  // namespace cairn
