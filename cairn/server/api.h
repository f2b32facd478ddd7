// Api: what the HTTP server answers: status, metrics, lookups and changes of one manager (docs/operations.md).
//
// Reading is open to everybody who can connect; what changes something, or asks for a prompt, needs the token. Without a token
// in the configuration such requests are refused.
//
// Many clients cost no more than a few: shared prefixes are looked for at most once every five seconds, one at a time.
//
// Thread safety: handle() and tick() on one thread at a time; the functions that handle() returns on any one thread.
// Ownership: holds a copy of the manager.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cairn/manager/kv_block_manager.h"
#include "cairn/server/history.h"
#include "cairn/server/http_message.h"
#include "cairn/server/log.h"

namespace cairn {

class Api {
 public:
  struct Options {
    std::string token = {};         // empty: changes are refused
    std::shared_ptr<Log> log = {};  // of changes; may be null
    bool is_loopback = true;        // only names of this machine are accepted in the header Host
    std::shared_ptr<std::atomic<bool>> is_draining = std::make_shared<std::atomic<bool>>(false);
  };
  Api(KvBlockManager manager, Options options);

  struct Route {
    std::string_view method;
    std::string_view path;
    bool needs_token = false;
    // May wait, for I/O or for copies: runs on the thread for that.
    bool is_slow = false;
    HttpResponse (Api::*answer)(const HttpRequest&) const = nullptr;  // null: answer_prefixes()
  };
  [[nodiscard]] static std::span<const Route> routes();

  [[nodiscard]] HttpAnswer handle(HttpRequest&& request) const;
  // Takes a sample for the history.
  void tick();

 private:
  HttpResponse dashboard(const HttpRequest&) const;
  HttpResponse dashboard_script(const HttpRequest&) const;
  HttpResponse dashboard_style(const HttpRequest&) const;
  HttpResponse openapi(const HttpRequest&) const;
  HttpResponse health(const HttpRequest&) const;
  HttpResponse readiness(const HttpRequest&) const;
  HttpResponse metrics(const HttpRequest&) const;
  HttpResponse status(const HttpRequest&) const;
  HttpResponse incidents(const HttpRequest&) const;
  HttpResponse times(const HttpRequest&) const;
  HttpResponse history(const HttpRequest&) const;
  HttpResponse events(const HttpRequest&) const;
  HttpResponse lookup(const HttpRequest&) const;
  HttpResponse reset(const HttpRequest&) const;
  HttpResponse invalidate(const HttpRequest&) const;
  HttpResponse pause(const HttpRequest&) const;
  HttpResponse resume(const HttpRequest&) const;
  HttpResponse resize(const HttpRequest&) const;
  HttpResponse drain(const HttpRequest&) const;
  HttpResponse set_log_level(const HttpRequest&) const;

  // What was found lately about shared prefixes; it takes long, and every client may ask for it.
  struct PrefixReport;
  struct PrefixReports;
  [[nodiscard]] HttpAnswer answer_prefixes(HttpRequest&& request) const;
  [[nodiscard]] PrefixReport find_prefixes() const;

  [[nodiscard]] Status check_token(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse pause_or_resume(const HttpRequest& request, bool pauses) const;
  void log_change(const HttpRequest& request, std::string_view outcome) const;

  const KvBlockManager manager_;
  const Options options_;
  const std::shared_ptr<PrefixReports> prefixes_;
  History history_;
};

}  // namespace cairn
