#include "cairn/capi/status_json.h"

#include <chrono>
#include <concepts>
#include <cstdio>
#include <string_view>

#include "cairn/base/str_cat.h"

namespace cairn::capi {

namespace {

// Objects and arrays, written as they are closed.
class JsonWriter {
 public:
  void begin(char bracket) {
    separate();
    text_.push_back(bracket);
    is_first_ = true;
  }
  void end(char bracket) {
    text_.push_back(bracket);
    is_first_ = false;
  }
  void name(std::string_view name) {
    separate();
    quote(name);
    text_.push_back(':');
    is_first_ = true;  // its value follows
  }
  void value(std::string_view text) {
    separate();
    quote(text);
  }
  void value(bool flag) {
    separate();
    text_ += flag ? "true" : "false";
  }
  void value(std::integral auto number) {
    separate();
    text_ += str_cat(number);
  }
  void value(double number) {
    char digits[32];
    (void)std::snprintf(digits, sizeof digits, "%.6g", number);
    separate();
    text_ += digits;
  }
  template <typename T>
  void field(std::string_view key, const T& content) {
    name(key);
    value(content);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!is_first_) {
      text_.push_back(',');
    }
    is_first_ = false;
  }
  void quote(std::string_view text) {
    text_.push_back('"');
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        text_.push_back('\\');
        text_.push_back(c);
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escaped[8];
        (void)std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
        text_ += escaped;
      } else {
        text_.push_back(c);
      }
    }
    text_.push_back('"');
  }

  std::string text_;
  bool is_first_ = true;
};

void write(JsonWriter& json, const char* name, const TierHealth::Report& health) {
  json.name(name);
  json.begin('{');
  json.field("is_up", health.is_up);
  json.field("reason", std::string_view(health.reason));
  json.end('}');
}

void write(JsonWriter& json, const TierStatus& tier) {
  json.begin('{');
  json.field("level", std::string_view(to_string(tier.level)));
  json.field("place", std::string_view(tier.place));
  json.field("path", std::string_view(tier.path));
  json.field("block_bytes", tier.block_bytes);
  json.field("blocks", tier.counts.total);
  json.field("free", tier.counts.free);
  json.field("registered", tier.counts.registered);
  json.field("in_use", tier.counts.active);
  json.field("recovered", tier.recovered.blocks);
  json.field("damaged", tier.recovered.damaged + tier.recovered.cut_off);
  json.field("file_damage", std::string_view(tier.recovered.damage));
  write(json, "reading", tier.reading);
  write(json, "writing", tier.writing);
  json.end('}');
}

void write(JsonWriter& json, const LinkStatus& link) {
  json.begin('{');
  json.field("from", std::string_view(to_string(link.from)));
  json.field("to", std::string_view(to_string(link.to)));
  json.field("is_paused", link.is_paused);
  json.field("done", link.totals.blocks);
  json.field("failed", link.totals.failed);
  json.field("mismatched", link.totals.mismatched);
  json.field("expired", link.totals.expired);
  json.field("cancelled", link.totals.cancelled);
  json.field("bytes", link.totals.bytes);
  json.field("bytes_per_second", link.bytes_per_second);
  json.field("executor", std::string_view(link.executor));
  json.end('}');
}

void write(JsonWriter& json, const OffloadStatus& offload) {
  json.begin('{');
  json.field("from", std::string_view(to_string(offload.from)));
  json.field("to", std::string_view(to_string(offload.to)));
  json.field("offered", offload.offered);
  json.field("copied", offload.copied);
  json.field("pending", offload.pending);
  json.field("in_flight", offload.in_flight);
  json.name("refused");
  json.begin('{');
  for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
    json.field(to_string(static_cast<OffloadRefusal>(i)), offload.refused[i]);
  }
  json.end('}');
  json.end('}');
}

template <typename Items>
void write_all(JsonWriter& json, const char* name, const Items& items) {
  json.name(name);
  json.begin('[');
  for (const auto& item : items) {
    write(json, item);
  }
  json.end(']');
}

void write(JsonWriter& json, const Incident& incident) {
  json.begin('{');
  json.field("kind", to_string(incident.kind));
  json.field("level", std::string_view(to_string(incident.level)));
  json.field("text", std::string_view(incident.text));
  json.end('}');
}

void write(JsonWriter& json, const OnboardStatus& onboard) {
  json.name("onboard");
  json.begin('{');
  json.field("loads", onboard.loads);
  json.field("finished", onboard.finished);
  json.field("refused", onboard.refused);
  json.field("joined", onboard.joined);
  json.field("not_worth_it", onboard.not_worth_it);
  json.field("expired", onboard.expired);
  json.field("misses", onboard.misses);
  json.name("hits");
  json.begin('{');
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    json.field(to_string(level), onboard.hits[index_of(level)]);
  }
  json.end('}');
  json.end('}');
}

void write(JsonWriter& json, const ScrubStatus& scrub) {
  json.name("scrub");
  json.begin('{');
  json.field("bytes", scrub.bytes);
  json.field("blocks", scrub.blocks);
  json.field("damaged", scrub.damaged);
  json.field("unreadable", scrub.unreadable);
  json.field("passes", scrub.passes);
  json.field("position", scrub.position);
  json.end('}');
}

}  // namespace

std::string status_as_json(const ManagerStatus& status) {
  JsonWriter json;
  json.begin('{');
  json.field("worker_id", status.worker_id);
  json.field("uptime_seconds", std::chrono::duration<double>(status.uptime).count());
  write_all(json, "tiers", status.tiers);
  write_all(json, "links", status.links);
  write_all(json, "offload", status.offload);
  write(json, status.onboard);
  if (status.scrub) {
    write(json, *status.scrub);
  }
  write_all(json, "incidents", status.incidents);
  json.field("incident_count", status.incident_count);
  json.end('}');
  return json.take();
}

}  // namespace cairn::capi
