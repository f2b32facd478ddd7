// RedisStore: a BlockStore in Redis or Valkey, alone or as a cluster. A value is one string, label before body.
//
// One thread serves all connections. Items are sent without waiting for the replies of earlier ones, each from and into the memory
// of its body. A cluster is recognised by its first redirection; from then on each key goes to the node that has its slot.
//
// Thread safety, errors: as BlockStore.
// Ownership: the caller of make(); the clock outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/cluster/block_store.h"
#include "cairn/cluster/redis_address.h"

namespace cairn {

class RedisStore final : public BlockStore {
 public:
  struct Options {
    RedisAddress address = {};
    std::string user = {};
    std::string password = {};                   // empty: the server asks for none
    std::string ca_file = {};                    // PEM; empty: the system's authorities
    Duration time_to_live = Duration::zero();    // of values; 0: until the server evicts them
    Duration timeout = std::chrono::seconds(2);  // to connect, and between two signs of life
    std::uint32_t connections = 2;               // to each node
    std::size_t limit = 65536;                   // items that are pending or in flight
    std::uint64_t seed = 0;                      // of the jitter
  };
  // Does not wait for the server: one that cannot be reached is an outcome of items. kInvalidArgument for a ca_file that cannot be
  // read.
  [[nodiscard]] static Result<std::unique_ptr<RedisStore>> make(const Clock& clock, const Options& options);
  ~RedisStore() override;

  [[nodiscard]] Status submit(StoreRequest&& request) override;
  void close() override;
  [[nodiscard]] std::string describe() const override;

 private:
  class Impl;
  explicit RedisStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
