// What clients of the HTTP API send: any bytes give either a value within its bounds, or an error that does not repeat them.
// The first byte chooses what is read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/base/check.h"
#include "cairn/server/api_requests.h"
#include "cairn/server/http_message.h"

namespace {

void check_error(const cairn::Error& error, std::string_view input) {
  CAIRN_CHECK(!error.message.empty(), "an error without a message");
  CAIRN_CHECK(error.message.size() < 300, "an error as long as its input");
  // Prompts must not get into logs by way of errors.
  CAIRN_CHECK(input.size() < 64 || error.message.find(input.substr(0, 64)) == std::string::npos,
              "an error repeats its input");
}

template <typename T>
bool checked(const cairn::Result<T>& read, std::string_view input) {
  if (!read) {
    check_error(read.error(), input);
  }
  return read.has_value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 9) {
    case 0: {
      const auto read = cairn::read_lookup(input);
      if (checked(read, input)) {
        CAIRN_CHECK(read->tokens.size() + read->keys.size() <= input.size(), "more tokens than bytes");
        CAIRN_CHECK(read->tokens.empty() || read->keys.empty(), "both tokens and keys");
      }
      break;
    }
    case 1: {
      const auto read = cairn::read_reset(input);
      if (checked(read, input)) {
        CAIRN_CHECK(read->keys.empty() || read->tier, "keys without a tier");
      }
      break;
    }
    case 2:
      checked(cairn::read_generation(input), input);
      break;
    case 3:
      checked(cairn::read_link(input), input);
      break;
    case 4: {
      const auto read = cairn::read_resize(input);
      if (checked(read, input)) {
        CAIRN_CHECK(read->blocks == 0 || read->bytes == 0, "both blocks and bytes");
      }
      break;
    }
    case 5:
      checked(cairn::read_log_level(input), input);
      break;
    case 6: {
      const auto query = cairn::read_query(input, {"limit", "after", "since"});
      if (checked(query, input)) {
        const auto limit = cairn::number_in(*query, "limit", 20, 1000);
        CAIRN_CHECK(!checked(limit, input) || *limit <= 1000, "a number out of bounds");
        if (const auto since = query->find("since"); since != query->end()) {
          const auto seconds = cairn::parse_seconds(since->second);
          CAIRN_CHECK(!seconds || *seconds >= 0, "negative seconds");
        }
      }
      break;
    }
    case 7: {
      const auto address = cairn::HttpAddress::parse(input);
      if (address) {
        const auto again = cairn::HttpAddress::parse(address->to_string());
        CAIRN_CHECK(again && again->to_string() == address->to_string(), "an address does not read back");
      }
      break;
    }
    default: {
      const auto nothing = cairn::read_nothing(input);
      if (!nothing) {
        check_error(nothing.error(), input);
      }
    }
  }
  return 0;
}
