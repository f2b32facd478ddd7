#include "cairn/cli/event_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <ostream>
#include <string_view>
#include <vector>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

using Kind = ReceivedEvents::Kind;
constexpr std::size_t kShownHashes = 4;

// "14:03:07.250", in UTC
std::string time_text(double seconds) {
  const auto whole = static_cast<std::time_t>(std::clamp(seconds, 0.0, 4e9));
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[32];
  std::snprintf(text, sizeof text, "%02d:%02d:%06.3f", parts.tm_hour, parts.tm_min,
                parts.tm_sec + std::clamp(seconds - static_cast<double>(whole), 0.0, 0.999));
  return text;
}

std::string hash_text(std::uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// "00000000000000ab 00000000000000cd and 3 more"
std::string hashes_text(const std::vector<std::uint64_t>& hashes) {
  std::string text;
  for (std::size_t i = 0; i < std::min(hashes.size(), kShownHashes); ++i) {
    text += i > 0 ? " " : "";
    text += hash_text(hashes[i]);
  }
  return hashes.size() > kShownHashes ? str_cat(text, " and ", hashes.size() - kShownHashes, " more") : text;
}

std::string blocks_text(std::size_t blocks) { return str_cat(blocks, blocks == 1 ? " block " : " blocks"); }

void print_for_people(const KvEvent& event, std::ostream& out) {
  if (const auto* const stored = std::get_if<KvStored>(&event.data)) {
    out << "  stored   " << medium_of(event.tier) << "  " << blocks_text(stored->hashes.size()) << "  "
        << hashes_text(stored->hashes);
    out << (stored->parent ? "  after " + hash_text(*stored->parent) : std::string("  at the start"));
    if (stored->token_ids.empty()) {
      out << "  tokens unknown";
    } else {
      out << "  " << stored->token_ids.size() << " tokens";
    }
    out << (stored->lora_name.empty() ? "" : "  adapter " + stored->lora_name);
  } else if (const auto* const removed = std::get_if<KvRemoved>(&event.data)) {
    out << "  removed  " << medium_of(event.tier) << "  " << blocks_text(removed->hashes.size()) << "  "
        << hashes_text(removed->hashes);
  } else {
    out << "  cleared";
  }
  if (event.group.value_or(0) != 0) {
    out << "  group " << *event.group;
  }
  out << "\n";
}

void print_as_json(const ReceivedEvents& received, const KvEvent& event, std::ostream& out) {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  json.field("sequence", received.sequence);
  json.field("time", received.batch.time);
  json.field("dp_rank", received.batch.dp_rank.value_or(0));
  const auto write_hashes = [&json](const std::vector<std::uint64_t>& hashes) {
    json.begin_array("block_hashes");
    for (const std::uint64_t hash : hashes) {
      json.value(hash);
    }
    json.end_array();
  };
  if (const auto* const stored = std::get_if<KvStored>(&event.data)) {
    json.field("event", "stored");
    json.field("medium", medium_of(event.tier));
    write_hashes(stored->hashes);
    json.key("parent_block_hash");
    if (stored->parent) {
      json.value(*stored->parent);
    } else {
      json.value(nullptr);
    }
    json.begin_array("token_ids");
    for (const Token token : stored->token_ids) {
      json.value(token);
    }
    json.end_array();
    json.field("block_size", stored->block_size);
    if (!stored->lora_name.empty()) {
      json.field("lora_name", stored->lora_name);
    }
  } else if (const auto* const removed = std::get_if<KvRemoved>(&event.data)) {
    json.field("event", "removed");
    json.field("medium", medium_of(event.tier));
    write_hashes(removed->hashes);
  } else {
    json.field("event", "cleared");
  }
  json.field("group_idx", event.group.value_or(0));
  json.end_object();
  out << line << "\n";
}

std::string report_text(const ReceivedEvents& received) {
  switch (received.kind) {
    case Kind::kSnapshot:
      return "snapshot: replaces everything before";
    case Kind::kLost:
      return str_cat("lost: batches from number ", received.sequence, " on cannot be had");
    case Kind::kRestarted:
      return "restarted: the publisher counts anew or was away; what it had cached before does not count";
    case Kind::kInvalid:
      return "invalid: " + received.text;
    case Kind::kBatch:
      break;
  }
  return {};
}

}  // namespace

void print_events(const ReceivedEvents& received, bool json, std::ostream& out) {
  constexpr std::string_view kNames[] = {"batch", "snapshot", "lost", "restarted", "invalid"};
  const bool is_router_json = received.kind != Kind::kInvalid && !received.text.empty();
  if (json && received.kind != Kind::kBatch) {
    std::string line;
    JsonWriter writer(line);
    writer.begin_object();
    writer.field("sequence", received.sequence);
    writer.field("report", kNames[static_cast<std::size_t>(received.kind)]);
    if (received.kind == Kind::kInvalid) {
      writer.field("reason", received.text);
    }
    writer.end_object();
    out << line << "\n";
  }
  if (is_router_json) {
    if (!json && received.kind != Kind::kBatch) {
      out << received.sequence << "  " << report_text(received) << "\n";
    }
    out << received.text;
    return;
  }
  if (!json) {
    out << received.sequence;
    if (received.kind == Kind::kBatch || received.kind == Kind::kSnapshot) {
      out << "  " << time_text(received.batch.time) << "  rank " << received.batch.dp_rank.value_or(0);
    }
    const std::string report = report_text(received);
    out << (report.empty() ? "" : "  " + report) << "\n";
  }
  for (const KvEvent& event : received.batch.events) {
    if (json) {
      print_as_json(received, event, out);
    } else {
      print_for_people(event, out);
    }
  }
}

Status run_events(const EventsOptions& options, const std::atomic<bool>& stop, std::ostream& out) {
  CAIRN_TRY_ASSIGN(const std::unique_ptr<EventReceiver> receiver, EventReceiver::create(options.stream));
  std::vector<ReceivedEvents> received;
  std::uint64_t batches = 0;
  while (!stop) {
    received.clear();
    receiver->receive(received);
    for (const ReceivedEvents& one : received) {
      print_events(one, options.json, out);
      batches += one.kind == Kind::kBatch || one.kind == Kind::kSnapshot ? 1 : 0;
      if (options.count != 0 && batches >= options.count) {
        return {};
      }
    }
    if (received.empty()) {
      CAIRN_TRY(receiver->wait(std::chrono::milliseconds(100)));
    } else {
      out << std::flush;
    }
    if (!out) {
      return {};  // the reader of a pipe has gone
    }
  }
  return {};
}

}  // namespace cairn::cli
