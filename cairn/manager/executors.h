// Executors: what carries the copies of a manager out: one for host memory, one for files, one for the GPU, and what
// joins the GPU to files.
//
// Does:     makes an executor when the first link needs it; links of one kind share it.
// Owner:    the manager. Destroyed before the links that use it, which ends their copies.
// Threads:  for_copy() by whoever builds the manager; the executors themselves as they say.
// Fails:    for_copy(): no GPU, no memory for staging.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_config.h"
#include "cairn/transfer/executor.h"

namespace cairn {

class Executors {
 public:
  Executors(const ManagerConfig& config, const ManagerParts& parts) : config_(config), parts_(parts) {}

  // The one that moves blocks from one layout to the other.
  [[nodiscard]] Result<TransferExecutor*> for_copy(const BlockLayout& from, const BlockLayout& to);
  // Where the clock does not move by itself.
  void check_deadlines();

 private:
  [[nodiscard]] Result<TransferExecutor*> host();
  [[nodiscard]] Result<TransferExecutor*> file();
  [[nodiscard]] Result<TransferExecutor*> gpu();
  // Through a ring of pinned memory, by two others.
  [[nodiscard]] Result<TransferExecutor*> bounce(std::unique_ptr<TransferExecutor>& place, TransferExecutor& other,
                                                 std::uint64_t block_bytes);
  // What is in the place. An empty one is filled first: as the manager's parts say, or else by `make`.
  template <typename Make>
  [[nodiscard]] Result<TransferExecutor*> in_place(std::unique_ptr<TransferExecutor>& place, ExecutorKind kind,
                                                   Make make);

  const ManagerConfig& config_;
  const ManagerParts& parts_;
  std::unique_ptr<TransferExecutor> host_;
  std::unique_ptr<TransferExecutor> file_;
  std::unique_ptr<TransferExecutor> gpu_;
  std::unique_ptr<TransferExecutor> elsewhere_;
  // They use the others, and end before them.
  std::unique_ptr<TransferExecutor> gpu_and_file_;
  std::unique_ptr<TransferExecutor> gpu_and_system_;
};

}  // namespace cairn
