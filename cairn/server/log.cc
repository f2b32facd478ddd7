#include "cairn/server/log.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "cairn/base/json_writer.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr double kBurst = 20;  // lines
constexpr double kPerSecond = 5;

// "2026-11-18T14:03:07.125Z"
std::string time_text(std::chrono::system_clock::time_point now) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03dZ", static_cast<int>(ms % 1000));
  return text;
}

// One line, whatever the text: control characters become spaces.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(line, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return line;
}

LogLevel level_of(Incident::Kind kind) {
  switch (kind) {
    case Incident::Kind::kTierBack:
    case Incident::Kind::kStartedUnclean:
      return LogLevel::kInfo;
    case Incident::Kind::kWrongBytes:
    case Incident::Kind::kDamagedFile:
      return LogLevel::kError;
    default:
      return LogLevel::kWarning;
  }
}

}  // namespace

struct Log::State {
  State(const LogConfig& config, Sink given, const Clock& with)
      : level(config.level), format(config.format), sink(std::move(given)), clock(with), last(with.now()) {}

  std::atomic<LogLevel> level;
  const LogFormat format;
  const Sink sink;
  const Clock& clock;
  Mutex mutex{LockRank::kHealth};
  double allowed CAIRN_GUARDED_BY(mutex) = kBurst;  // lines now
  TimePoint last CAIRN_GUARDED_BY(mutex);
  std::uint64_t left_out CAIRN_GUARDED_BY(mutex) = 0;
};

Log::Log(const LogConfig& config, Sink sink, const Clock& clock)
    : state_(std::make_unique<State>(config, std::move(sink), clock)) {}
Log::~Log() = default;

LogLevel Log::level() const { return state_->level.load(std::memory_order_relaxed); }
void Log::set_level(LogLevel level) { state_->level.store(level, std::memory_order_relaxed); }

void Log::write(LogLevel level, std::string_view message, const Fields& fields) {
  if (level == LogLevel::kOff || level > this->level()) {
    return;
  }
  const MutexLock lock(state_->mutex);
  const TimePoint now = state_->clock.now();
  const double seconds = std::chrono::duration<double>(now - state_->last).count();
  state_->allowed = std::min(kBurst, state_->allowed + std::max(0.0, seconds) * kPerSecond);
  state_->last = now;
  if (state_->allowed < 1) {
    ++state_->left_out;
    return;
  }
  state_->allowed -= 1;
  Fields all = fields;
  if (state_->left_out > 0) {
    all.emplace_back("left_out", std::to_string(std::exchange(state_->left_out, 0)));
  }
  const std::string time = time_text(std::chrono::system_clock::now());
  std::string line;
  if (state_->format == LogFormat::kJson) {
    JsonWriter json(line);
    json.begin_object();
    json.field("time", time);
    json.field("level", to_string(level));
    json.field("message", message);
    for (const auto& [name, value] : all) {
      json.field(name, value);
    }
    json.end_object();
  } else {
    line = str_cat(time, " ", to_string(level), ": ", one_line(message));
    std::string_view before = " (";
    for (const auto& [name, value] : all) {
      line += str_cat(before, name, "=\"", one_line(value), "\"");
      before = " ";
    }
    line += all.empty() ? "" : ")";
  }
  line += '\n';
  if (state_->sink) {
    state_->sink(line);
  } else {
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

std::shared_ptr<Log> log_incidents(const ManagerConfig& config, ManagerParts& parts) {
  if (config.log.level == LogLevel::kOff && config.http.listen.empty()) {
    return nullptr;
  }
  auto log = std::make_shared<Log>(config.log);
  parts.on_incident = [log, on_incident = std::move(parts.on_incident)](const Incident& incident) {
    log->write(incident);
    if (on_incident) {
      on_incident(incident);
    }
  };
  return log;
}

void Log::write(const Incident& incident) {
  write(level_of(incident.kind), incident.text,
        {{"kind", std::string(to_string(incident.kind))}, {"tier", to_string(incident.level)}});
}

}  // namespace cairn
