// HttpServer: the HTTP port of a manager: API, Prometheus metrics and dashboard (docs/operations.md).
//
//   CAIRN_TRY_ASSIGN(KvBlockManager manager, KvBlockManager::make(config));
//   CAIRN_TRY_ASSIGN(const auto server, HttpServer::start(manager));   // if config.http.listen is given
//
// Thread safety: any thread.
// Ownership:     holds a copy of the manager: destroy the server first, or the manager does not stop. The destructor waits for
//                requests in progress, at most two seconds.
// Errors:        start(): kInvalidArgument for an address or token that is wrong, or an address that other machines can reach
//                without a token; kUnavailable if the ports are taken; kIo if the token's file cannot be read.
#pragma once

#include <memory>
#include <string>

#include "cairn/base/result.h"
#include "cairn/manager/kv_block_manager.h"

namespace cairn {

class Log;

class HttpServer {
 public:
  // As the manager's configuration says (http.*); null if http.listen is empty. Engines that are data parallel listen on the
  // port of the configuration plus their dp_rank. If that is taken, the next free one of 15 further ports is used. `log` gets the changes that clients make; may be null.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> start(const KvBlockManager& manager,
                                                                 std::shared_ptr<Log> log = nullptr);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  // "127.0.0.1:9470"
  [[nodiscard]] std::string address() const;
  // From now on /readyz says that the process is not ready, so that load balancers stop sending requests.
  void begin_draining() const;

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace cairn
