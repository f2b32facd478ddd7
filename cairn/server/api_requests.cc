#include "cairn/server/api_requests.h"

#include <charconv>
#include <initializer_list>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "cairn/base/str_cat.h"
#include "cairn/manager/config_values.h"

namespace cairn {

namespace {

using Json = nlohmann::json;

Unexpected<Error> wrong(std::string message) { return fail(ErrorCode::kInvalidArgument, std::move(message)); }

std::string names_of(std::initializer_list<std::string_view> known) {
  std::string names;
  for (const std::string_view name : known) {
    names += str_cat(names.empty() ? "" : ", ", name);
  }
  return names;
}

// The object of a body, with no other fields than `known`. An empty body is an empty object.
Result<Json> read_object(std::string_view body, std::initializer_list<std::string_view> known) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return Json::object();
  }
  Json object = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return wrong(str_cat("the body is not a JSON object; expected the fields ", names_of(known)));
  }
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      // The name is the client's: it may be long, or the content of a prompt.
      return wrong(str_cat("the body has an unknown field; expected ", known.size() == 0 ? "none" : names_of(known)));
    }
  }
  return object;
}

// The text of a field; empty if it is not there.
Result<std::string> text_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) {
    return std::string();
  }
  if (!found->is_string()) {
    return wrong(str_cat("'", name, "' is not a text"));
  }
  return found->get<std::string>();
}

Result<std::uint64_t> whole_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) {
    return wrong(str_cat("'", name, "' is missing or not a whole number"));
  }
  return found->get<std::uint64_t>();
}

Result<std::vector<BlockKey>> keys_in(const Json& object) {
  std::vector<BlockKey> keys;
  const auto found = object.find("keys");
  if (found == object.end()) {
    return keys;
  }
  if (!found->is_array()) {
    return wrong("'keys' is not a list of keys");
  }
  keys.reserve(found->size());
  for (const Json& one : *found) {
    if (!one.is_string()) {
      return wrong(str_cat("key ", keys.size(), " is not a text"));
    }
    const Result<BlockKey> key = BlockKey::parse(one.get_ref<const std::string&>());
    if (!key) {
      return wrong(str_cat("key ", keys.size(), " is not the key of a block, as /v1/prefixes shows them"));
    }
    keys.push_back(*key);
  }
  return keys;
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

// "a%20b+c" is "a b c"; std::nullopt if an escape is cut off or wrong.
std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const std::optional<unsigned> high = i + 1 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const std::optional<unsigned> low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) {
      return std::nullopt;
    }
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

}  // namespace

Result<CacheLevel> read_level(std::string_view text) {
  constexpr std::pair<std::string_view, CacheLevel> kNames[] = {
      {"G1", CacheLevel::kG1}, {"device", CacheLevel::kG1}, {"G2", CacheLevel::kG2}, {"host", CacheLevel::kG2},
      {"G3", CacheLevel::kG3}, {"disk", CacheLevel::kG3},   {"G4", CacheLevel::kG4}, {"remote", CacheLevel::kG4}};
  for (const auto& [name, level] : kNames) {
    if (text == name) {
      return level;
    }
  }
  return wrong("a tier is one of device (G1), host (G2), disk (G3), remote (G4)");
}

Result<std::map<std::string, std::string>> read_query(std::string_view query,
                                                      const std::vector<std::string_view>& known) {
  std::map<std::string, std::string> read;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.empty()) {
      continue;
    }
    const std::size_t equals = pair.find('=');
    std::optional<std::string> name = decoded(pair.substr(0, equals));
    std::optional<std::string> value = decoded(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    if (!name || !value) {
      return wrong("the query has a wrong escape; write bytes as %41");
    }
    if (std::find(known.begin(), known.end(), *name) == known.end()) {
      std::string names;
      for (const std::string_view one : known) {
        names += str_cat(names.empty() ? "" : ", ", one);
      }
      return wrong(str_cat("the query has an unknown parameter; expected ", names.empty() ? "none" : names));
    }
    if (!read.emplace(*name, *std::move(value)).second) {
      return wrong(str_cat("the query has '", *name, "' twice"));
    }
  }
  return read;
}

Result<std::uint64_t> number_in(const std::map<std::string, std::string>& query, const std::string& name,
                                std::uint64_t otherwise, std::uint64_t most) {
  const auto found = query.find(name);
  if (found == query.end()) {
    return otherwise;
  }
  const std::optional<std::uint64_t> number = parse_whole(found->second, 0, most);
  if (!number) {
    return wrong(str_cat("'", name, "' is not a whole number from 0 to ", most));
  }
  return *number;
}

std::optional<double> parse_seconds(std::string_view text) {
  return parse_real(text, 0, std::numeric_limits<double>::max());
}

Result<LookupBody> read_lookup(std::string_view body) {
  CAIRN_TRY_ASSIGN(const Json object, read_object(body, {"tokens", "keys", "salt", "lora_name"}));
  LookupBody read;
  CAIRN_TRY_ASSIGN(read.keys, keys_in(object));
  CAIRN_TRY_ASSIGN(read.salt, text_in(object, "salt"));
  CAIRN_TRY_ASSIGN(read.lora_name, text_in(object, "lora_name"));
  const auto tokens = object.find("tokens");
  if ((tokens != object.end()) == object.contains("keys")) {
    return wrong("give either 'tokens', a list of token ids, or 'keys', a list of block keys");
  }
  if (tokens == object.end()) {
    return read;
  }
  if (!tokens->is_array()) {
    return wrong("'tokens' is not a list of token ids");
  }
  read.tokens.reserve(tokens->size());
  for (const Json& one : *tokens) {
    if (!one.is_number_unsigned() || one.get<std::uint64_t>() > std::numeric_limits<Token>::max()) {
      return wrong(str_cat("token ", read.tokens.size(), " is not a token id: a whole number below 2^32"));
    }
    read.tokens.push_back(static_cast<Token>(one.get<std::uint64_t>()));
  }
  return read;
}

Result<ResetBody> read_reset(std::string_view body) {
  CAIRN_TRY_ASSIGN(const Json object, read_object(body, {"tier", "keys"}));
  ResetBody read;
  CAIRN_TRY_ASSIGN(const std::string tier, text_in(object, "tier"));
  if (object.contains("tier")) {
    CAIRN_TRY_ASSIGN(read.tier, read_level(tier));
  }
  CAIRN_TRY_ASSIGN(read.keys, keys_in(object));
  if (object.contains("keys") && (!read.tier || read.keys.empty())) {
    return wrong("'keys' needs a 'tier' to drop the blocks from, and at least one key");
  }
  return read;
}

Result<std::uint64_t> read_generation(std::string_view body) {
  CAIRN_TRY_ASSIGN(const Json object, read_object(body, {"weights_generation"}));
  return whole_in(object, "weights_generation");
}

Result<LinkBody> read_link(std::string_view body) {
  CAIRN_TRY_ASSIGN(const Json object, read_object(body, {"from", "to"}));
  CAIRN_TRY_ASSIGN(const std::string from, text_in(object, "from"));
  CAIRN_TRY_ASSIGN(const std::string to, text_in(object, "to"));
  LinkBody read;
  CAIRN_TRY_ASSIGN(read.from, read_level(from));
  CAIRN_TRY_ASSIGN(read.to, read_level(to));
  return read;
}

Result<ResizeBody> read_resize(std::string_view body) {
  CAIRN_TRY_ASSIGN(const Json object, read_object(body, {"blocks", "size"}));
  if (object.contains("blocks") == object.contains("size")) {
    return wrong("give either 'blocks', a number, or 'size', a text such as \"64GiB\"");
  }
  ResizeBody read;
  if (object.contains("blocks")) {
    CAIRN_TRY_ASSIGN(read.blocks, whole_in(object, "blocks"));
    return read;
  }
  CAIRN_TRY_ASSIGN(const std::string size, text_in(object, "size"));
  const std::optional<std::uint64_t> bytes = parse_size(size);
  if (!bytes) {
    return wrong("'size' is not a size such as \"64GiB\"");
  }
  read.bytes = *bytes;
  return read;
}

Result<LogLevel> read_log_level(std::string_view body) {
  CAIRN_TRY_ASSIGN(const Json object, read_object(body, {"level"}));
  CAIRN_TRY_ASSIGN(const std::string text, text_in(object, "level"));
  for (const LogLevel level : {LogLevel::kOff, LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo}) {
    if (text == to_string(level)) {
      return level;
    }
  }
  return wrong("'level' is one of off, error, warning, info");
}

Status read_nothing(std::string_view body) {
  CAIRN_TRY(read_object(body, {}));
  return {};
}

}  // namespace cairn
