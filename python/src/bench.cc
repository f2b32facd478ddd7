// cairn._cairn._bench_*: the C++ side of bench/python_bench.py, which compares calls from Python with the same calls from here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "python/src/connectors.h"
#include "python/src/keys.h"
#include "python/src/managers.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

namespace {

// Nanoseconds that each call takes.
template <typename Call>
double time_of(std::uint32_t repeats, Call call) {
  const auto before = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0; i < repeats; ++i) {
    call();
    asm volatile("" ::: "memory");  // every call is made
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - before).count() / repeats;
}

}  // namespace

void bind_bench(nb::module_& module) {
  module.def(
      "_bench_block_size",
      [](const Manager& manager, std::uint32_t repeats) {
        const ManagerPtr owner = manager.use();
        std::uint32_t read = 0;
        return time_of(repeats, [&] { read = owner->manager.block_size(); });
      },
      "manager"_a, "repeats"_a);
  module.def(
      "_bench_match",
      [](const PoolHandle& pool, const KeysArgument& keys, std::uint32_t repeats) {
        return time_of(repeats, [&] { const ImmutableBlocks found = pool.pool().match_prefix(keys.get()); });
      },
      "pool"_a, "keys"_a, "repeats"_a);
  module.def(
      "_bench_hash",
      [](const KeyHasher& hasher, TokensArgument tokens, std::uint32_t block_size, std::uint32_t repeats) {
        const std::span<const Token> given = tokens.get();
        return time_of(repeats, [&] {
          std::vector<BlockKey> keys(given.size() / block_size);
          static_cast<void>(value_or_raise(hash_blocks(given, block_size, hasher, std::nullopt, keys)));
        });
      },
      "hasher"_a, "tokens"_a, "block_size"_a, "repeats"_a);
  module.def(
      "_bench_step",
      [](Scheduler& self, std::uint64_t number, const std::vector<std::uint64_t>& requests,
         const std::vector<std::uint64_t>& computed_tokens) {
        const ManagerPtr owner = self.use();
        const Token token = 7;
        return time_of(1, [&] {
          static_cast<void>(owner->connector->take_outcomes());
          std::vector<SchedulerConnector::Scheduled> all(requests.size());
          for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].request = RequestHandle{requests[i]};
            all[i].computed_tokens = computed_tokens.at(i);
            all[i].new_tokens = {&token, 1};
          }
          check(owner->connector->build({.number = number, .scheduled = all}, self.metadata));
        });
      },
      "scheduler"_a, "number"_a, "requests"_a, "computed_tokens"_a, "One step in which each request decodes a token.");
}

}  // namespace cairn::python
