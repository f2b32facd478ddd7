#include "cairn/events/event.h"

#include <variant>

#include "cairn/base/json_writer.h"

namespace cairn {

namespace {

struct DataWriter {
  JsonWriter& json;

  void operator()(const Stored& stored) const {
    json.begin_object();
    json.begin_object("stored");
    json.key("parent_hash");
    if (stored.parent) {
      json.value(value_of(*stored.parent));
    } else {
      json.value(nullptr);
    }
    json.begin_array("blocks");
    for (const StoredBlock& block : stored.blocks) {
      json.begin_object();
      json.field("block_hash", value_of(block.key.sequence_hash()));
      json.field("tokens_hash", value_of(block.tokens_hash));
      json.field("position", block.key.position());
      json.end_object();
    }
    json.end_array();
    if (!stored.token_ids.empty()) {
      json.begin_array("token_ids");
      for (const Token token : stored.token_ids) {
        json.value(token);
      }
      json.end_array();
    }
    json.end_object();
    json.end_object();
  }

  void operator()(const Removed& removed) const {
    json.begin_object();
    json.begin_object("removed");
    json.begin_array("block_hashes");
    for (const BlockKey& key : removed.keys) {
      json.value(value_of(key.sequence_hash()));
    }
    json.end_array();
    json.end_object();
    json.end_object();
  }

  void operator()(const Cleared&) const { json.value("cleared"); }
  void operator()(const Invalidated& invalidated) const {
    json.begin_object();
    json.begin_object("invalidated");
    json.field("weights_generation", invalidated.weights_generation);
    json.end_object();
    json.end_object();
  }
  void operator()(const Suspended&) const { json.value("suspended"); }
  void operator()(const Resumed&) const { json.value("resumed"); }
};

}  // namespace

void append_json_line(const Event& event, std::string& out) {
  JsonWriter json(out);
  json.begin_object();
  json.field("event_id", event.sequence);
  json.field("tier", to_string(event.tier));
  json.key("data");
  std::visit(DataWriter{json}, event.data);
  json.field("worker_id", event.source.worker_id);
  json.field("dp_rank", event.source.dp_rank);
  json.field("group_idx", event.group);
  json.end_object();
  out.push_back('\n');
}

}  // namespace cairn
