// What clients of the HTTP API send: query strings and JSON bodies, read into plain values. Everything here comes from outside.
//
// Thread safety: functions of plain values.
// Errors: kInvalidArgument, with the field, what is wrong and what is expected. A message never shows tokens or salts. Fields
// that are not known are errors, so that a mistyped one is noticed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

// "G2" or "host"
[[nodiscard]] Result<CacheLevel> read_level(std::string_view text);

// "limit=10&after=7": each name of `known` at most once, values decoded.
[[nodiscard]] Result<std::map<std::string, std::string>> read_query(std::string_view query,
                                                                    const std::vector<std::string_view>& known);
// The whole number of that name, `otherwise` if it is not there.
[[nodiscard]] Result<std::uint64_t> number_in(const std::map<std::string, std::string>& query, const std::string& name,
                                              std::uint64_t otherwise, std::uint64_t most);

// "12.5"
[[nodiscard]] std::optional<double> parse_seconds(std::string_view text);

// What a prompt would hit: its tokens, or the keys of its blocks.
struct LookupBody {
  std::vector<Token> tokens = {};
  std::vector<BlockKey> keys = {};
  std::string salt = {};
  std::string lora_name = {};
};
[[nodiscard]] Result<LookupBody> read_lookup(std::string_view body);

struct ResetBody {
  std::optional<CacheLevel> tier = {};  // std::nullopt: all
  std::vector<BlockKey> keys = {};      // empty: all blocks of the tier
};
[[nodiscard]] Result<ResetBody> read_reset(std::string_view body);

[[nodiscard]] Result<std::uint64_t> read_generation(std::string_view body);

struct LinkBody {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG2;
};
[[nodiscard]] Result<LinkBody> read_link(std::string_view body);

struct ResizeBody {
  std::uint64_t blocks = 0;  // one of the two
  std::uint64_t bytes = 0;
};
[[nodiscard]] Result<ResizeBody> read_resize(std::string_view body);

[[nodiscard]] Result<LogLevel> read_log_level(std::string_view body);
// For requests that need no body: nothing, or {}.
[[nodiscard]] Status read_nothing(std::string_view body);

}  // namespace cairn
