// The structs behind the opaque handles of the C interface. Internal.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <variant>
#include <vector>

#include "cairn/capi/c_lifetime.h"
#include "cairn/capi/cairn_c.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/events/event_log.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/server/http_server.h"

struct cairn_manager {
  cairn_manager(cairn::KvBlockManager given, std::unique_ptr<cairn::HttpServer> http)
      : manager(std::move(given)), server(std::move(http)) {}
  cairn_manager(const cairn_manager&) = delete;
  cairn_manager& operator=(const cairn_manager&) = delete;
  ~cairn_manager() { lifetime->end(); }

  cairn::KvBlockManager manager;
  std::unique_ptr<cairn::HttpServer> server;  // null unless http.listen is given; goes before the manager
  const std::shared_ptr<cairn::capi::Lifetime> lifetime = std::make_shared<cairn::capi::Lifetime>();
};

struct cairn_blocks {
  std::variant<cairn::MutableBlocks, cairn::ImmutableBlocks> blocks;
};

struct cairn_events {
  const cairn::KvBlockManager* manager;  // accessed only while a Lifetime::Use of `lifetime` is good
  const std::shared_ptr<cairn::capi::Lifetime> lifetime;
  cairn::EventSubscriber subscriber;
  std::string lines;  // read from the log, not yet returned to the caller
};

namespace cairn::capi {

// The outcome of a copy, written by the callback of its request before `ended` is released.
struct FutureState {
  std::binary_semaphore ended{0};
  std::optional<Error> error = {};
  std::uint32_t blocks = 0;
  std::array<std::uint32_t, kCacheLevels> from = {};
  std::uint32_t not_worth_it = 0;
  ImmutableBlocks held = {};
  std::vector<bool> is_below = {};
};

}  // namespace cairn::capi

struct cairn_future {
  const cairn::KvBlockManager* manager;  // accessed only while a Lifetime::Use of `lifetime` is good
  const std::shared_ptr<cairn::capi::Lifetime> lifetime;
  const std::shared_ptr<cairn::capi::FutureState> state;
  std::function<void(const cairn::KvBlockManager&)> cancel = {};
};

struct cairn_resets {
  cairn::ResetReceiver receiver;
};

struct cairn_scheduler {
  std::unique_ptr<cairn::SchedulerConnector> connector;
  // The same manager; goes before the connector, which stops it.
  std::unique_ptr<cairn_manager> manager;
  cairn::SchedulerConnector::Outcomes outcomes;  // taken, and not given to the engine yet
  // What the last calls gave out.
  std::vector<std::byte> metadata;
  std::vector<cairn_refused> refused;
  std::vector<cairn_loaded> loaded;
  std::vector<std::string> released;
  std::vector<const char*> released_ids;
  std::vector<cairn_ended> ended;

  ~cairn_scheduler() { manager.reset(); }
};

struct cairn_worker {
  std::unique_ptr<cairn::WorkerConnector> connector;
  int device = 0;                              // that the engine's events are of
  std::optional<cairn::WorkerOutcomes> taken;  // and not given to the engine yet
  // What the last report gave out.
  std::vector<std::string> requests;  // their ids, as texts
  std::vector<cairn_worker_loaded> loaded;
  std::vector<const char*> saved;
  std::vector<std::uint32_t> failed_blocks;
};

namespace cairn::capi {

// The configuration in `text` or `file` (one of them may be given), overridden by the environment if `use_environment`.
[[nodiscard]] Result<ManagerConfig> read_config(const char* text, const char* file, bool use_environment);

}  // namespace cairn::capi
