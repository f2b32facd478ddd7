// What the opaque handles of the C interface are, and how one is made of a configuration. Internal.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "cairn/capi/cairn.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/events/event_subscriber.h"
#include "cairn/manager/kv_block_manager.h"

struct cairn_manager {
  cairn::KvBlockManager manager;
};

struct cairn_blocks {
  std::variant<cairn::MutableBlocks, cairn::ImmutableBlocks> blocks;
};

struct cairn_events {
  const cairn::KvBlockManager* manager;  // which outlives it
  cairn::EventSubscriber subscriber;
  std::string lines;  // read and not yet taken
};

struct cairn_scheduler {
  std::unique_ptr<cairn::SchedulerConnector> connector;
  // The same manager; goes before the connector, which stops it.
  std::unique_ptr<cairn_manager> manager;
  // What the last calls gave out.
  std::vector<std::byte> metadata;
  std::vector<cairn_refused> refused;
  std::vector<cairn_loaded> loaded;
  std::vector<std::string> released;
  std::vector<const char*> released_ids;

  ~cairn_scheduler() { manager.reset(); }
};

struct cairn_worker {
  std::unique_ptr<cairn::WorkerConnector> connector;
  int device = 0;  // that the engine's events are of
  // What the last report gave out.
  std::vector<std::string> requests;  // their ids, as texts
  std::vector<cairn_worker_loaded> loaded;
  std::vector<const char*> saved;
  std::vector<std::uint32_t> failed_blocks;
};

namespace cairn::capi {

// From a text or a file, with the environment over it or not.
[[nodiscard]] Result<ManagerConfig> read_config(const char* text, const char* file, bool use_environment);

}  // namespace cairn::capi
