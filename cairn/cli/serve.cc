#include "cairn/cli/serve.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <string_view>
#include <thread>
#include <utility>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/demo_engines.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/token_counter.h"
#include "cairn/server/http_server.h"
#include "cairn/server/log.h"

namespace cairn::cli {

namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

// Tells systemd, if it has started this process as Type=notify: "READY=1", "STOPPING=1". The protocol of sd_notify(3).
void notify(std::string_view state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || std::strlen(path) >= sizeof address.sun_path || path[0] == '\0') {
    return;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  if (address.sun_path[0] == '@') {
    address.sun_path[0] = '\0';  // an abstract name
  }
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket != -1) {
    (void)::sendto(socket, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
    ::close(socket);
  }
}

void say_where(const ServeOptions& options, const std::string& address, std::ostream& out) {
  if (options.json) {
    std::string line;
    JsonWriter json(line);
    json.begin_object();
    json.field("address", address);
    json.field("pid", static_cast<std::int64_t>(::getpid()));
    json.field("demo", options.demo);
    json.end_object();
    out << line << std::endl;
    return;
  }
  out << "Dashboard  http://" << address << "/\n"
      << "Metrics    http://" << address << "/metrics\n"
      << "Terminal   cairn top --address " << address << "\n"
      << (options.demo ? str_cat(options.engines, " simulated engines are sending requests. ") : "") << "Ctrl-C stops."
      << std::endl;
}

}  // namespace

ManagerConfig demo_config(const std::string& disk_path) {
  ManagerConfig config;
  config.model = {.name = "demo", .layers = 4, .heads = 2, .head_size = 64, .element_type = "bf16"};
  config.device.blocks = 1500;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = 3000;
  config.disk.blocks = 12'000;
  config.disk.path = disk_path;
  config.disk.direct = false;  // temporary folders may be in memory
  config.requests.tenants = {{.name = "gold"}, {.name = "silver"}};
  config.http.listen = kDefaultHttpAddress;
  config.log.level = LogLevel::kInfo;
  return config;
}

Status run_serve(const ServeOptions& options, std::ostream& out, const std::atomic<bool>& stop) {
  ManagerConfig config = options.config;
  if (!options.demo) {
    config.device = {};  // the engine's
  }
  if (!config.host.is_there() && !config.disk.is_there()) {
    return fail(ErrorCode::kInvalidArgument,
                "there is no tier to serve; give host.size or disk.size and disk.path (cairn config explains them)");
  }
  ManagerParts parts;
  const std::shared_ptr<Log> log = log_incidents(config, parts);
  const auto tokens = std::make_shared<TokenCounter>(config.requests);
  if (options.demo) {
    parts.tokens = tokens;
  }
  CAIRN_TRY_ASSIGN(const KvBlockManager manager, KvBlockManager::make(config, parts));
  CAIRN_TRY_ASSIGN(std::unique_ptr<HttpServer> server, HttpServer::start(manager, log));
  std::unique_ptr<DemoEngines> engines;
  if (options.demo) {
    engines = std::make_unique<DemoEngines>(manager, tokens, options.engines);
  }
  say_where(options, server->address(), out);
  log->write(LogLevel::kInfo, "ready", {{"address", server->address()}});
  notify("READY=1");
  while (!stop.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
  notify("STOPPING=1");
  server->begin_draining();
  log->write(LogLevel::kInfo, "shutting down; waiting for copies in flight");
  engines.reset();
  if (const Status drained = manager.drain(config.shutdown); !drained) {
    log->write(LogLevel::kWarning, str_cat("stopping before everything was copied: ", drained.error().message));
  }
  server.reset();
  return {};
}

}  // namespace cairn::cli
