// Log: lines about what an operator should know, for people or as JSON: incidents, and changes made over HTTP. Never the content
// of a prompt.
//
//   2026-11-18T14:03:07.125Z warning: disk tier "/nvme/blocks" is out of use: write failed (kind="tier out" tier="G3")
//   {"time":"2026-11-18T14:03:07.125Z","level":"warning","message":"...","kind":"tier out","tier":"G3"}
//
// At most 20 lines at once and five a second after that; lines beyond are counted, and the next line says how many were
// left out ("left_out").
//
// Thread safety: any thread may call. Lines are not mixed.
// Ownership: shared by those who write to it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_config.h"
#include "cairn/manager/manager_status.h"

namespace cairn {

class Log {
 public:
  using Fields = std::vector<std::pair<std::string_view, std::string>>;
  using Sink = std::function<void(std::string_view line)>;  // with the line break; called under a lock

  // Without a sink, lines go to standard error.
  explicit Log(const LogConfig& config, Sink sink = {}, const Clock& clock = steady_clock());
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

  void write(LogLevel level, std::string_view message, const Fields& fields = {});
  // For ManagerParts::on_incident.
  void write(const Incident& incident);

  [[nodiscard]] LogLevel level() const;
  void set_level(LogLevel level);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// The log of a process that makes a manager: its incidents go there, beside parts.on_incident. Null if log.level is off and,
// because there is no HTTP port, nobody can change that.
[[nodiscard]] std::shared_ptr<Log> log_incidents(const ManagerConfig& config, ManagerParts& parts);

}  // namespace cairn
