// Executors: the executors of a manager: one for host memory, one for files, one for the GPU, one for a store, and those that join
// the GPU to files and to memory that is not pinned. Each is made when the first link needs it; links of one kind share it.
//
// Thread safety: for_copy() only while the manager is made.
// Ownership:     the manager destroys it before the links that use it, which ends their copies.
// Errors:        for_copy(): no GPU, or no memory for staging.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_config.h"
#include "cairn/transfer/executor.h"

namespace cairn {

class BlockStore;
class RemoteSpace;

class Executors {
 public:
  Executors(const ManagerConfig& config, const ManagerParts& parts) : config_(config), parts_(parts) {}

  // The executor that moves blocks from one layout to the other.
  [[nodiscard]] Result<TransferExecutor*> for_copy(const BlockLayout& from, const BlockLayout& to);
  // The store of layouts that are nowhere in this machine.
  void use_store(BlockStore& store, RemoteSpace& space) {
    block_store_ = &store;
    space_ = &space;
  }
  // Only needed with a virtual clock.
  void check_deadlines();

 private:
  [[nodiscard]] Result<TransferExecutor*> host();
  [[nodiscard]] Result<TransferExecutor*> file();
  [[nodiscard]] Result<TransferExecutor*> gpu();
  [[nodiscard]] Result<TransferExecutor*> store();
  // Joins two executors by a ring of pinned memory.
  [[nodiscard]] Result<TransferExecutor*> bounce(std::unique_ptr<TransferExecutor>& place, TransferExecutor& other,
                                                 std::uint64_t block_bytes);
  // Returns the executor in `place`. If there is none, makes it as the manager's parts say, or else by `make`.
  template <typename Make>
  [[nodiscard]] Result<TransferExecutor*> in_place(std::unique_ptr<TransferExecutor>& place, ExecutorKind kind,
                                                   Make make);

  const ManagerConfig& config_;
  const ManagerParts& parts_;
  BlockStore* block_store_ = nullptr;
  RemoteSpace* space_ = nullptr;
  std::unique_ptr<TransferExecutor> host_;
  std::unique_ptr<TransferExecutor> file_;
  std::unique_ptr<TransferExecutor> gpu_;
  std::unique_ptr<TransferExecutor> store_;
  std::unique_ptr<TransferExecutor> elsewhere_;
  // These use the others, and are destroyed before them.
  std::unique_ptr<TransferExecutor> gpu_and_file_;
  std::unique_ptr<TransferExecutor> gpu_and_system_;
};

}  // namespace cairn
