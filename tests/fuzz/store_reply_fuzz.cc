// What a store sends, before and after it is authenticated: replies of Redis, its redirections and maps of slots, and labels of
// values. A reply means the same whether it arrives at once or byte by byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cairn/base/check.h"
#include "cairn/cluster/redis_address.h"
#include "cairn/cluster/redis_slots.h"
#include "cairn/cluster/resp.h"
#include "cairn/cluster/store_label.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn;
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const Result<std::optional<DecodedResp>> whole = decode_resp(in, {.bytes = 4096, .elements = 64, .depth = 4});
  if (whole && *whole) {
    const std::size_t bytes = (*whole)->bytes;
    CAIRN_CHECK(bytes > 0 && bytes <= size, "a reply is a part of what was received");
    for (std::size_t part = 0; part < bytes; ++part) {
      const auto early = decode_resp(in.substr(0, part), {.bytes = 4096, .elements = 64, .depth = 4});
      CAIRN_CHECK(early.has_value() && !early->has_value(), "the beginning of a reply is not a reply");
    }
    (void)parse_slots((*whole)->value);
    if (const std::optional<RedisRedirection> there = parse_redirection((*whole)->value.text)) {
      CAIRN_CHECK(there->slot < kRedisSlots && there->node.port != 0, "a redirection names a slot and a port");
    }
  }
  if (const Result<RedisAddress> address = RedisAddress::parse(in)) {
    CAIRN_CHECK(*RedisAddress::parse(address->to_string()) == *address, "an address is printed as it is read");
  }
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const Result<StoreLabel> label = StoreLabel::decode(bytes)) {
    const StoreLabelBytes again = label->encode();
    CAIRN_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()),
                "a label is written as it was read");
  }
  (void)redis_slot(in);
  return 0;
}
