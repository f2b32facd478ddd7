#include "cairn/server/api.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "cairn/base/json_writer.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/hash/secret_bytes.h"
#include "cairn/manager/status_json.h"
#include "cairn/server/api_requests.h"
#include "cairn/server/prefixes.h"
#include "cairn/server/server_assets.h"

namespace cairn {

namespace {

// More blocks than these are not looked at for /v1/prefixes: it takes 100 bytes for each of them, for a moment.
constexpr std::size_t kMostPrefixBlocks = 4'000'000;
constexpr std::uint64_t kMostPrefixes = 1000;
constexpr auto kPrefixesAreFresh = std::chrono::seconds(5);
constexpr std::uint64_t kMostEvents = 1000;
// Scripts, styles and data come from this server alone, nothing may be framed, and forms go nowhere.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfRange:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kAlreadyExists:
      return 409;
    case ErrorCode::kExhausted:
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kExpired:
      return 504;
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
    case ErrorCode::kCancelled:
      return 500;
  }
  return 500;
}

HttpResponse error_response(int status, std::string_view code, std::string_view message) {
  HttpResponse response{.status = status};
  JsonWriter json(response.body);
  json.begin_object();
  json.begin_object("error");
  json.field("code", code);
  json.field("message", message);
  json.end_object();
  json.end_object();
  return response;
}

HttpResponse error_response(const Error& error) {
  return error_response(status_of(error.code), to_string(error.code), error.message);
}

// Writes one JSON object as the body of a response.
template <typename Write>
HttpResponse json_response(Write write) {
  HttpResponse response;
  JsonWriter json(response.body);
  json.begin_object();
  write(json);
  json.end_object();
  return response;
}

HttpResponse asset(std::string_view text, std::string content_type) {
  return {.content_type = std::move(content_type),
          .body = std::string(text),
          .headers = {{"Content-Security-Policy", kPolicy}, {"Cache-Control", "no-cache"}}};
}

void write_levels(JsonWriter& json, const std::array<std::uint64_t, kCacheLevels>& counts) {
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4}) {
    json.field(to_string(level), counts[index_of(level)]);
  }
}

HttpResponse report_response(const ResetReport& report) {
  return json_response([&](JsonWriter& json) {
    json.field("reset", report.reset);
    json.field("in_use", report.in_use);
    json.field("copies", report.copies);
    json.field("loads", report.loads);
  });
}

// Names of this machine, with any port: "127.0.0.1:9470", "localhost", "[::1]:9470". A page of another site that has its name
// point to this machine cannot send one of these.
bool is_local_name(std::string_view host) {
  if (host.empty()) {
    return true;  // HTTP/1.0, no browser
  }
  const std::size_t colon = host.rfind(':');
  const std::string_view name = colon == std::string_view::npos || host.ends_with(']') ? host : host.substr(0, colon);
  if (name == "localhost") {
    return true;
  }
  const Result<HttpAddress> address = HttpAddress::parse(str_cat(name, ":0"));
  return address && !name.empty() && address->is_loopback();
}

}  // namespace

std::span<const Api::Route> Api::routes() {
  constexpr bool kOpen = false;
  constexpr bool kToken = true;
  constexpr bool kQuick = false;
  constexpr bool kSlow = true;
  static constexpr Route kRoutes[] = {
      {"GET", "/", kOpen, kQuick, &Api::dashboard},
      {"GET", "/dashboard.js", kOpen, kQuick, &Api::dashboard_script},
      {"GET", "/dashboard.css", kOpen, kQuick, &Api::dashboard_style},
      {"GET", "/healthz", kOpen, kQuick, &Api::health},
      {"GET", "/readyz", kOpen, kQuick, &Api::readiness},
      {"GET", "/metrics", kOpen, kQuick, &Api::metrics},
      {"GET", "/v1/openapi.json", kOpen, kQuick, &Api::openapi},
      {"GET", "/v1/status", kOpen, kQuick, &Api::status},
      {"GET", "/v1/incidents", kOpen, kQuick, &Api::incidents},
      {"GET", "/v1/times", kOpen, kQuick, &Api::times},
      {"GET", "/v1/history", kOpen, kQuick, &Api::history},
      {"GET", "/v1/prefixes", kOpen, kSlow, nullptr},
      {"GET", "/v1/events", kOpen, kQuick, &Api::events},
      {"POST", "/v1/lookup", kToken, kQuick, &Api::lookup},
      {"POST", "/v1/reset", kToken, kSlow, &Api::reset},
      {"POST", "/v1/invalidate", kToken, kSlow, &Api::invalidate},
      {"POST", "/v1/pause", kToken, kQuick, &Api::pause},
      {"POST", "/v1/resume", kToken, kQuick, &Api::resume},
      {"POST", "/v1/resize", kToken, kSlow, &Api::resize},
      {"POST", "/v1/drain", kToken, kSlow, &Api::drain},
      {"POST", "/v1/log", kToken, kQuick, &Api::set_log_level},
  };
  return kRoutes;
}

HttpAnswer Api::handle(HttpRequest&& request) const {
  if (options_.is_loopback && !is_local_name(request.host)) {
    return error_response(403, "forbidden",
                          "the header Host does not name this machine; connect to 127.0.0.1 or localhost, or let the "
                          "proxy in front set the header");
  }
  const Route* found = nullptr;
  std::string methods;
  for (const Route& route : routes()) {
    if (route.path == request.path) {
      methods += str_cat(methods.empty() ? "" : ", ", route.method);
      found = route.method == request.method ? &route : found;
    }
  }
  if (found == nullptr && methods.empty()) {
    return error_response(404, to_string(ErrorCode::kNotFound),
                          "there is no such path; GET /v1/openapi.json lists all of them");
  }
  if (found == nullptr) {
    HttpResponse response =
        error_response(405, to_string(ErrorCode::kInvalidArgument), str_cat("this path needs the method ", methods));
    response.headers.emplace_back("Allow", methods);
    return response;
  }
  if (found->needs_token) {
    if (const Status allowed = check_token(request); !allowed) {
      HttpResponse response = error_response(401, "unauthorized", allowed.error().message);
      response.headers.emplace_back("WWW-Authenticate", "Bearer");
      return response;
    }
  }
  if (found->answer == nullptr) {
    return answer_prefixes(std::move(request));
  }
  if (found->is_slow) {
    return [this, answer = found->answer, request = std::move(request)] { return (this->*answer)(request); };
  }
  return (this->*found->answer)(request);
}

Status Api::check_token(const HttpRequest& request) const {
  if (options_.token.empty()) {
    return fail(ErrorCode::kFailedPrecondition,
                "this server has no token, so it accepts no changes; set http.token_file (CAIRN_HTTP_TOKEN_FILE) and "
                "start it again");
  }
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  if (!given.starts_with(kBearer)) {
    return fail(ErrorCode::kInvalidArgument,
                "changes need the token: send the header 'Authorization: Bearer TOKEN' (cairn ctl --token-file FILE)");
  }
  const std::string_view token = given.substr(kBearer.size());
  if (!internal::same_secret(std::as_bytes(std::span(token)), std::as_bytes(std::span(options_.token)))) {
    return fail(ErrorCode::kInvalidArgument, "the token is wrong");
  }
  return {};
}

void Api::log_change(const HttpRequest& request, std::string_view outcome) const {
  if (options_.log != nullptr) {
    options_.log->write(LogLevel::kInfo, outcome, {{"path", request.path}, {"peer", request.peer}});
  }
}

// --- what people and probes read ---

HttpResponse Api::dashboard(const HttpRequest&) const { return asset(dashboard_html(), "text/html; charset=utf-8"); }
HttpResponse Api::dashboard_script(const HttpRequest&) const {
  return asset(dashboard_js(), "text/javascript; charset=utf-8");
}
HttpResponse Api::dashboard_style(const HttpRequest&) const {
  return asset(dashboard_css(), "text/css; charset=utf-8");
}
HttpResponse Api::openapi(const HttpRequest&) const { return {.body = std::string(openapi_json())}; }

HttpResponse Api::health(const HttpRequest&) const {
  return json_response([](JsonWriter& json) { json.field("status", "ok"); });
}

HttpResponse Api::readiness(const HttpRequest&) const {
  std::vector<std::string> reasons;
  if (options_.is_draining->load(std::memory_order_relaxed)) {
    reasons.emplace_back("the process is shutting down");
  }
  for (const TierStatus& tier : manager_.status().tiers) {
    for (const auto& [health, use] : {std::pair(&tier.reading, "reading"), std::pair(&tier.writing, "writing")}) {
      if (!health->is_up) {
        reasons.push_back(str_cat("tier ", to_string(tier.level), " is out of use for ", use, ": ", health->reason));
      }
    }
  }
  HttpResponse response = json_response([&](JsonWriter& json) {
    json.field("ready", reasons.empty());
    json.begin_array("reasons");
    for (const std::string& reason : reasons) {
      json.value(reason);
    }
    json.end_array();
  });
  response.status = reasons.empty() ? 200 : 503;
  return response;
}

HttpResponse Api::metrics(const HttpRequest&) const {
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = manager_.metrics().to_prometheus()};
}

HttpResponse Api::status(const HttpRequest&) const { return {.body = status_as_json(manager_.status())}; }

HttpResponse Api::incidents(const HttpRequest&) const {
  const ManagerStatus status = manager_.status();
  return json_response([&](JsonWriter& json) {
    json.field("count", status.incident_count);
    json.begin_array("incidents");
    for (const Incident& incident : status.incidents) {
      write_json(json, incident, status.now);
    }
    json.end_array();
  });
}

HttpResponse Api::times(const HttpRequest&) const {
  return json_response([this](JsonWriter& json) {
    json.begin_array("operations");
    for (const Metrics::Sample& sample : manager_.metrics().snapshot()) {
      if (sample.kind != MetricKind::kHistogram) {
        continue;
      }
      json.begin_object();
      json.field("name", sample.name);
      json.begin_object("labels");
      for (const auto& [name, value] : sample.labels) {
        json.field(name, value);
      }
      json.end_object();
      json.field("count", sample.histogram.count);
      json.field("sum", sample.histogram.sum, 9);
      json.field("p50", sample.histogram.p50, 6);
      json.field("p90", sample.histogram.p90, 6);
      json.field("p99", sample.histogram.p99, 6);
      json.end_object();
    }
    json.end_array();
  });
}

HttpResponse Api::history(const HttpRequest& request) const {
  const auto query = read_query(request.query, {"since"});
  if (!query) {
    return error_response(query.error());
  }
  double since = -1;
  if (const auto found = query->find("since"); found != query->end()) {
    const std::optional<double> given = parse_seconds(found->second);
    if (!given) {
      return error_response(
          {ErrorCode::kInvalidArgument, "'since' is not a number of seconds, as in the first column of the history"});
    }
    since = *given;
  }
  return {.body = history_.to_json(since)};
}

void Api::tick() {
  Histogram::Summary loads;
  for (const Metrics::Sample& sample : manager_.metrics().snapshot()) {
    if (sample.name == "cairn_load_seconds") {
      loads = sample.histogram;
    }
  }
  history_.add(manager_.status(), loads);
}

struct Api::PrefixReport {
  std::vector<SharedPrefix> top = {};
  std::size_t blocks = 0;  // that were looked at
  bool is_cut = false;
};

struct Api::PrefixReports {
  Mutex mutex{LockRank::kHealth};
  std::shared_ptr<const PrefixReport> last CAIRN_GUARDED_BY(mutex);  // null: none yet
  TimePoint fresh_until CAIRN_GUARDED_BY(mutex){};
  bool is_being_made CAIRN_GUARDED_BY(mutex) = false;
};

Api::Api(KvBlockManager manager, Options options)
    : manager_(std::move(manager)), options_(std::move(options)), prefixes_(std::make_shared<PrefixReports>()) {}

namespace {

template <typename Report>
HttpResponse prefix_response(const Report& report, std::size_t limit, std::uint32_t block_size) {
  return json_response([&](JsonWriter& json) {
    json.field("block_size", block_size);
    json.field("blocks", report.blocks);
    json.field("is_cut", report.is_cut);
    json.begin_array("prefixes");
    for (const SharedPrefix& prefix : std::span(report.top).first(std::min(limit, report.top.size()))) {
      json.begin_object();
      json.field("key", prefix.key.to_string());
      json.field("tokens", std::uint64_t{prefix.blocks} * block_size);
      json.field("sequences", prefix.sequences);
      json.field("blocks_after", prefix.below);
      json.field("blocks_saved", prefix.saved());
      json.begin_object("tiers");
      write_levels(json, prefix.by_tier);
      json.end_object();
      json.end_object();
    }
    json.end_array();
  });
}

}  // namespace

Api::PrefixReport Api::find_prefixes() const {
  std::vector<TierBlock> blocks;
  std::vector<ResidentBlock> part;
  PrefixReport report;
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4}) {
    const BlockPool* const pool = manager_.pool(level);
    for (std::uint32_t next = 0; pool != nullptr && next < pool->capacity() && !report.is_cut;) {
      part.clear();
      next = pool->list_resident(next, 4096, part);
      for (const ResidentBlock& block : part) {
        blocks.push_back({.tier = level, .block = block});
      }
      report.is_cut = blocks.size() > kMostPrefixBlocks;
    }
  }
  report.blocks = blocks.size();
  report.top = top_prefixes(std::move(blocks), kMostPrefixes);
  return report;
}

HttpAnswer Api::answer_prefixes(HttpRequest&& request) const {
  const auto query = read_query(request.query, {"limit"});
  const auto limit = query ? number_in(*query, "limit", 20, kMostPrefixes) : Unexpected(Error(query.error()));
  if (!limit) {
    return error_response(limit.error());
  }
  {
    const MutexLock lock(prefixes_->mutex);
    if (prefixes_->last != nullptr && (prefixes_->is_being_made || steady_clock().now() < prefixes_->fresh_until)) {
      return prefix_response(*prefixes_->last, *limit, manager_.block_size());
    }
    if (prefixes_->is_being_made) {
      return error_response({ErrorCode::kUnavailable, "the prefixes are being looked for; ask again in a moment"});
    }
    prefixes_->is_being_made = true;
  }
  // Ends with the function, which may be dropped without having been called.
  const auto ends = std::shared_ptr<void>(nullptr, [reports = prefixes_](void*) {
    const MutexLock lock(reports->mutex);
    reports->is_being_made = false;
  });
  return [this, ends, limit = *limit] {
    const TimePoint began = steady_clock().now();
    const auto report = std::make_shared<const PrefixReport>(find_prefixes());
    const TimePoint ended = steady_clock().now();
    {
      const MutexLock lock(prefixes_->mutex);
      prefixes_->last = report;
      prefixes_->fresh_until = ended + std::max<Duration>(kPrefixesAreFresh, 20 * (ended - began));
    }
    return prefix_response(*report, limit, manager_.block_size());
  };
}

HttpResponse Api::events(const HttpRequest& request) const {
  const EventLog* const log = manager_.events();
  if (log == nullptr) {
    return error_response({ErrorCode::kFailedPrecondition, "there are no events: event_log is 0"});
  }
  const auto query = read_query(request.query, {"after", "limit"});
  const auto limit = query ? number_in(*query, "limit", 100, kMostEvents) : Unexpected(Error(query.error()));
  const auto after = query ? number_in(*query, "after", 0, std::numeric_limits<std::uint64_t>::max() - 1)
                           : Unexpected(Error(query.error()));
  if (!limit || !after) {
    return error_response(limit ? after.error() : limit.error());
  }
  const std::uint64_t last = log->last_sequence();
  const std::uint64_t oldest = log->oldest_sequence();
  const std::uint64_t most = std::max<std::uint64_t>(*limit, 1);
  const bool has_after = query->contains("after");
  const std::uint64_t from = has_after ? *after + 1 : std::max(oldest, last >= most ? last - most + 1 : 1);
  Result<EventBatch> batch = log->read(from, most);
  if (!batch) {
    return error_response(batch.error());
  }
  const auto* const lagged = std::get_if<Lagged>(&*batch);
  return json_response([&](JsonWriter& json) {
    json.field("last", last);
    json.field("oldest", oldest);
    json.field("is_lagged", lagged != nullptr);
    json.begin_array("events");
    std::string line;
    std::uint64_t count = 0;
    if (auto* const events = std::get_if<std::vector<Event>>(&*batch)) {
      for (Event& event : *events) {
        if (count++ == most) {
          break;
        }
        if (auto* const stored = std::get_if<Stored>(&event.data)) {
          stored->token_ids.clear();  // the text of prompts
        }
        line.clear();
        append_json_line(event, line);
        line.pop_back();  // the line break
        json.raw(line);
      }
    }
    json.end_array();
  });
}

// --- what needs the token ---

HttpResponse Api::lookup(const HttpRequest& request) const {
  Result<LookupBody> body = read_lookup(request.body);
  if (!body) {
    return error_response(body.error());
  }
  if (!manager_.config().model.groups.empty()) {
    return error_response({ErrorCode::kFailedPrecondition,
                           "the model has layer groups (model.groups), for which prompts cannot be looked up yet"});
  }
  std::vector<BlockKey> keys = std::move(body->keys);
  if (!body->tokens.empty()) {
    keys.resize(body->tokens.size() / manager_.block_size());
    const KeyHasher hasher = manager_.hasher().with({.salt = body->salt, .lora_name = body->lora_name});
    if (const auto hashed = hash_blocks(body->tokens, manager_.block_size(), hasher, std::nullopt, keys); !hashed) {
      return error_response(hashed.error());
    }
  }
  const PrefixLocation found = manager_.locate(keys);
  std::array<std::uint64_t, kCacheLevels> by_tier = {};
  for (const CacheLevel level : found.levels) {
    ++by_tier[index_of(level)];
  }
  return json_response([&](JsonWriter& json) {
    json.field("block_size", manager_.block_size());
    json.field("blocks", keys.size());
    json.field("found", found.blocks());
    json.field("found_tokens", std::uint64_t{found.blocks()} * manager_.block_size());
    json.field("worth_loading", manager_.worth_loading(found, {}).blocks);
    json.begin_object("tiers");
    write_levels(json, by_tier);
    json.end_object();
    // The nearest tier of each block, in runs: 40 blocks in host memory, then 10 on disk.
    json.begin_array("runs");
    for (std::size_t i = 0; i < found.levels.size();) {
      std::size_t end = i;
      while (end < found.levels.size() && found.levels[end] == found.levels[i]) {
        ++end;
      }
      json.begin_object();
      json.field("tier", to_string(found.levels[i]));
      json.field("blocks", end - i);
      json.end_object();
      i = end;
    }
    json.end_array();
  });
}

HttpResponse Api::reset(const HttpRequest& request) const {
  const Result<ResetBody> body = read_reset(request.body);
  if (!body) {
    return error_response(body.error());
  }
  if (body->tier && manager_.pool(*body->tier) == nullptr) {
    return error_response({ErrorCode::kNotFound,
                           str_cat("there is no tier ", to_string(*body->tier), " here, or the engine manages it")});
  }
  if (!body->keys.empty()) {
    const ResetOutcome done = manager_.reset(*body->tier, body->keys);
    log_change(request, str_cat("reset ", done.reset, " blocks of ", to_string(*body->tier)));
    return report_response({.reset = done.reset, .in_use = done.in_use});
  }
  const Result<ResetReport> done = body->tier ? manager_.reset(*body->tier) : manager_.reset_all();
  log_change(request, str_cat("reset of ", body->tier ? to_string(*body->tier) : "all tiers", ": ",
                              done ? "done" : done.error().message));
  return done ? report_response(*done) : error_response(done.error());
}

HttpResponse Api::invalidate(const HttpRequest& request) const {
  const Result<std::uint64_t> generation = read_generation(request.body);
  if (!generation) {
    return error_response(generation.error());
  }
  const Result<ResetReport> done = manager_.invalidate(*generation);
  log_change(request,
             str_cat("invalidate up to weights generation ", *generation, ": ", done ? "done" : done.error().message));
  return done ? report_response(*done) : error_response(done.error());
}

HttpResponse Api::pause_or_resume(const HttpRequest& request, bool pauses) const {
  const Result<LinkBody> link = read_link(request.body);
  if (!link) {
    return error_response(link.error());
  }
  const Status done = pauses ? manager_.pause(link->from, link->to) : manager_.resume(link->from, link->to);
  if (!done) {
    return error_response(done.error());
  }
  log_change(request, str_cat(pauses ? "paused " : "resumed ", to_string(link->from), "-", to_string(link->to)));
  return json_response([&](JsonWriter& json) { json.field("is_paused", pauses); });
}

HttpResponse Api::pause(const HttpRequest& request) const { return pause_or_resume(request, true); }
HttpResponse Api::resume(const HttpRequest& request) const { return pause_or_resume(request, false); }

HttpResponse Api::resize(const HttpRequest& request) const {
  const Result<ResizeBody> body = read_resize(request.body);
  if (!body) {
    return error_response(body.error());
  }
  std::uint64_t blocks = body->blocks;
  if (body->bytes != 0) {
    for (const TierStatus& tier : manager_.status().tiers) {
      if (tier.level == CacheLevel::kG2) {
        blocks = body->bytes / tier.block_bytes;
      }
    }
  }
  if (blocks > std::numeric_limits<std::uint32_t>::max()) {
    return error_response({ErrorCode::kOutOfRange, str_cat(blocks, " blocks are more than a tier can have")});
  }
  if (const Status done = manager_.resize_host(static_cast<std::uint32_t>(blocks)); !done) {
    return error_response(done.error());
  }
  log_change(request, str_cat("resized the host tier to ", blocks, " blocks"));
  return json_response([&](JsonWriter& json) { json.field("blocks", blocks); });
}

HttpResponse Api::drain(const HttpRequest& request) const {
  if (const Status nothing = read_nothing(request.body); !nothing) {
    return error_response(nothing.error());
  }
  // Short, because other changes wait for this one. Callers ask again.
  const bool is_drained = manager_.drain(std::chrono::seconds(1)).has_value();
  const ManagerStatus status = manager_.status();
  std::uint64_t pending = 0;
  std::uint64_t in_flight = 0;
  for (const OffloadStatus& offload : status.offload) {
    pending += offload.pending;
  }
  for (const LinkStatus& link : status.links) {
    in_flight += link.totals.blocks_in_flight;
  }
  return json_response([&](JsonWriter& json) {
    json.field("is_drained", is_drained);
    json.field("pending", pending);
    json.field("in_flight", in_flight);
  });
}

HttpResponse Api::set_log_level(const HttpRequest& request) const {
  const Result<LogLevel> level = read_log_level(request.body);
  if (!level) {
    return error_response(level.error());
  }
  if (options_.log == nullptr) {
    return error_response({ErrorCode::kFailedPrecondition, "this server has no log"});
  }
  options_.log->set_level(*level);
  log_change(request, str_cat("log level ", to_string(*level)));
  return json_response([&](JsonWriter& json) { json.field("level", to_string(*level)); });
}

}  // namespace cairn
