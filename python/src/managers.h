// A manager, and what keeps it alive, as the bindings of managers, loads, memory, events and connectors share it.
//
// Ownership: every Python object that needs a manager holds a ManagerPtr. The last one to go stops the manager, without the
// GIL, on its thread: no thread of Cairn ever holds one.
// Thread safety: a call that releases the GIL holds a ManagerPtr of its own, so that close() on another thread does not take
// the manager away from it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/evict/retention.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_config.h"
#include "cairn/server/http_server.h"
#include "python/src/binding.h"
#include "python/src/pool.h"

namespace cairn::python {

void bind_manager(nb::module_& module);
void bind_memory(nb::module_& module);
void bind_wakeups(nb::module_& module);
void bind_loads(nb::module_& module);
void bind_pages(nb::module_& module);
void bind_events(nb::module_& module);
void bind_metrics(nb::module_& module);
void bind_status(nb::module_& module);
void bind_scheduler(nb::module_& module);
void bind_worker(nb::module_& module);
void bind_engine_requests(nb::module_& module);
void bind_bench(nb::module_& module);  // for bench/python_bench.py

// Members are destroyed from the last to the first: the connector, if there is one, stops after its manager was let go.
struct ManagerOwner {
  std::unique_ptr<SchedulerConnector> connector;
  KvBlockManager manager;
  std::unique_ptr<HttpServer> server;  // null unless http.listen is given
};
using ManagerPtr = std::shared_ptr<ManagerOwner>;
// Requires: the GIL, here and where the last copy is destroyed.
[[nodiscard]] ManagerPtr own(std::unique_ptr<SchedulerConnector> connector, KvBlockManager manager,
                             std::unique_ptr<HttpServer> server);

// An object with threads. Those that are alive when the interpreter exits are closed in order, the latest first.
class Closable {
 public:
  Closable();
  Closable(const Closable&) = delete;
  Closable& operator=(const Closable&) = delete;
  virtual ~Closable();

  virtual void close() = 0;

  static void close_all();
  // close_all() was called: nobody may wait any more.
  [[nodiscard]] static bool is_exiting() { return is_exiting_; }

 private:
  static inline bool is_exiting_ = false;  // guarded by the GIL
  const std::uint64_t made_in_ = forks();
};

// Somebody who waits for a manager, and has to know when there is nothing to wait for any more.
class CloseListener {
 public:
  virtual ~CloseListener() = default;
  // With the GIL, by close(). The manager is still there.
  virtual void on_close(const ManagerOwner& owner) = 0;
};

// cairn.Manager.
class Manager final : public Closable {
 public:
  explicit Manager(ManagerPtr owner) : owner_(std::move(owner)) {}
  ~Manager() override = default;

  // Raises if the manager is closed, or the parent process's.
  [[nodiscard]] ManagerPtr use() const { return owner_.get(); }
  // The same for a call that keeps the GIL.
  [[nodiscard]] const KvBlockManager& get() const { return owner_.get()->manager; }
  [[nodiscard]] bool is_closed() const { return owner_.is_closed(); }
  // Null if the tier is missing. Always the same object, so that close() can close it.
  [[nodiscard]] nb::object pool(CacheLevel level);
  void close() override;

  // Adding one that is there already has no effect. Requires: the GIL; that it is removed before it goes.
  void add(CloseListener& listener) { listeners_.insert(&listener); }
  void remove(CloseListener& listener) { listeners_.erase(&listener); }

 private:
  OfProcess<ManagerPtr> owner_;
  std::set<CloseListener*> listeners_;
  std::array<nb::object, kCacheLevels> pools_;
};

// A text that lives as long as the process, for signatures that are not literals.
[[nodiscard]] const char* kept(std::string text);

// "G1" to "G3", or "device", "host" and "disk".
[[nodiscard]] CacheLevel level_of(std::string_view name);
// "device", "host", "disk": names of attributes. As a value, a tier is "G1" to "G3".
[[nodiscard]] const char* name_of(CacheLevel level);

// `kind`: "returns", "system_prompt", "will_not_return" or "none".
[[nodiscard]] RetentionHint hint_of(std::string_view kind, double after);

// Configuration from a dict (nested, or with dotted keys), TOML (text or a file) and keyword arguments; later ones override
// earlier ones. Raises one error that lists all mistakes.
struct ConfigArguments {
  nb::object values = nb::none();  // a dict, or None
  std::optional<std::string> toml = {};
  std::string file = {};
  bool environment = false;
  nb::kwargs keys = {};
};
[[nodiscard]] ManagerConfig config_of(const ConfigArguments& arguments);

// A dict, list or tuple as cairn.Record: its keys are attributes too.
[[nodiscard]] nb::object as_record(nb::handle value);

[[nodiscard]] nb::dict dict_of(const TokenCounts& counts);
[[nodiscard]] nb::dict dict_of(const TokenReport& report);
[[nodiscard]] nb::dict dict_of(const ResetReport& report);

}  // namespace cairn::python
