// DemoEngines: simulated engines that send chats through a manager, for `cairn serve --demo`. They match, load, fill and register
// blocks as engines do; nothing is computed, and the load comes and goes within a minute, so that there is something to see.
//
// Thread safety: start and destroy on one thread. Each engine is a thread, "cairn-demo".
// Ownership: holds a copy of the manager. The destructor waits for the engines: a request takes milliseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/token_counter.h"

namespace cairn::cli {

class DemoEngines {
 public:
  // `tokens` is the counter of the manager (ManagerParts::tokens).
  DemoEngines(const KvBlockManager& manager, std::shared_ptr<TokenCounter> tokens, std::uint32_t engines);
  DemoEngines(const DemoEngines&) = delete;
  DemoEngines& operator=(const DemoEngines&) = delete;
  ~DemoEngines();

 private:
  const KvBlockManager manager_;
  const std::shared_ptr<TokenCounter> tokens_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cairn::cli
