// Copies that go wrong by chance, to show that what is generated does not depend on them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cairn/manager/kv_block_manager.h"

namespace cairn::engine {

// What to put around a rank's executors: a copy of `share` of the blocks fails, comes short or late, brings other bytes than
// were sent, or leaves bytes behind that change later. Not what nobody could find: bytes that change on the device itself.
[[nodiscard]] std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)>
faulty_copies(double share, std::uint64_t seed);

}  // namespace cairn::engine
