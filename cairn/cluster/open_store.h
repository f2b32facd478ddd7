// open_store(): the store that an address names.
//
// Errors: kInvalidArgument for an address that no store has, and for a file of certificates that cannot be read. A server that
// cannot be reached is no error: items get that outcome.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/cluster/block_store.h"

namespace cairn {

struct StoreOptions {
  std::string url = {};
  std::string user = {};
  std::string password = {};
  std::string ca_file = {};
  Duration time_to_live = Duration::zero();  // of values; 0: as long as the store keeps them
  Duration timeout = std::chrono::seconds(2);
  std::uint32_t connections = 2;
  std::uint64_t seed = 0;  // of the jitter
};
[[nodiscard]] Status check_store_url(const std::string& url);
[[nodiscard]] Result<std::unique_ptr<BlockStore>> open_store(const StoreOptions& options, const Clock& clock);

}  // namespace cairn
