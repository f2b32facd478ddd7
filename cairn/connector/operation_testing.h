// Operations as tests write them down.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cairn/connector/operation.h"

namespace cairn::testing {

[[nodiscard]] inline OperationPtr load_operation(OperationId id, RequestId request, std::vector<BlockId> block_ids,
                                                 bool in_step = false) {
  Operation load{.id = id, .is_load = true, .in_step = in_step};
  load.request = std::move(request);
  load.block_ids = std::move(block_ids);
  return std::make_shared<Operation>(std::move(load));
}
[[nodiscard]] inline OperationPtr save_operation(OperationId id, RequestId request, std::vector<BlockId> block_ids) {
  Operation save{.id = id};
  save.request = std::move(request);
  save.block_ids = std::move(block_ids);
  return std::make_shared<Operation>(std::move(save));
}
// As it is named by a fence: without its request.
[[nodiscard]] inline OperationPtr fenced_operation(OperationId id, std::vector<BlockId> block_ids) {
  return save_operation(id, std::uint64_t{0}, std::move(block_ids));
}

}  // namespace cairn::testing
