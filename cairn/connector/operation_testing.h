// Short notations of operations for tests.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cairn/connector/slot.h"
#include "cairn/connector/worker_operations.h"

namespace cairn::testing {

[[nodiscard]] inline OperationPtr load_operation(OperationId id, RequestId request, std::vector<BlockId> block_ids,
                                                 bool in_step = false) {
  Operation load{.id = id, .is_load = true, .in_step = in_step};
  load.request = std::move(request);
  load.block_ids = std::move(block_ids);
  return std::make_shared<Operation>(std::move(load));
}
[[nodiscard]] inline OperationPtr save_operation(OperationId id, RequestId request, std::vector<BlockId> block_ids,
                                                 bool in_step = false) {
  Operation save{.id = id, .in_step = in_step};
  save.request = std::move(request);
  save.block_ids = std::move(block_ids);
  return std::make_shared<Operation>(std::move(save));
}
// As a fence names it: without its request.
[[nodiscard]] inline OperationPtr fenced_operation(OperationId id, std::vector<BlockId> block_ids) {
  return save_operation(id, std::uint64_t{0}, std::move(block_ids));
}

// Whether the worker expects an outcome of the operation.
[[nodiscard]] inline bool is_pending(WorkerOperations& operations, OperationId id) {
  const OperationPtr operation = fenced_operation(id, {});
  return !operations.wait_for({&operation, 1}, TimePoint{}, [] { return false; });
}

}  // namespace cairn::testing
