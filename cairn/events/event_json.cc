#include "cairn/events/event_json.h"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <variant>

namespace cairn {

namespace {

void append_number(std::string& out, std::uint64_t number) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  out.append(digits, end);
}

// [a,b,c], each item written by `append_item`.
template <typename Items, typename AppendItem>
void append_array(std::string& out, const Items& items, AppendItem append_item) {
  char separator = '[';
  for (const auto& item : items) {
    out.push_back(separator);
    append_item(item);
    separator = ',';
  }
  out.append(items.empty() ? "[]" : "]");
}

struct DataWriter {
  std::string& out;

  void operator()(const Stored& stored) const {
    out.append(R"({"stored":{"parent_hash":)");
    if (stored.parent) {
      append_number(out, value_of(*stored.parent));
    } else {
      out.append("null");
    }
    out.append(R"(,"blocks":)");
    append_array(out, stored.blocks, [&](const StoredBlock& block) {
      out.append(R"({"block_hash":)");
      append_number(out, value_of(block.key.sequence_hash()));
      out.append(R"(,"tokens_hash":)");
      append_number(out, value_of(block.tokens_hash));
      out.append(R"(,"position":)");
      append_number(out, block.key.position());
      out.push_back('}');
    });
    if (!stored.token_ids.empty()) {
      out.append(R"(,"token_ids":)");
      append_array(out, stored.token_ids, [&](Token token) { append_number(out, token); });
    }
    out.append("}}");
  }

  void operator()(const Removed& removed) const {
    out.append(R"({"removed":{"block_hashes":)");
    append_array(out, removed.keys, [&](const BlockKey& key) { append_number(out, value_of(key.sequence_hash())); });
    out.append("}}");
  }

  void operator()(const Cleared&) const { out.append(R"("cleared")"); }
  void operator()(const Invalidated& invalidated) const {
    out.append(R"({"invalidated":{"weights_generation":)");
    append_number(out, invalidated.weights_generation);
    out.append("}}");
  }
  void operator()(const Suspended&) const { out.append(R"("suspended")"); }
  void operator()(const Resumed&) const { out.append(R"("resumed")"); }
};

}  // namespace

void append_json_line(const Event& event, std::string& out) {
  out.append(R"({"event_id":)");
  append_number(out, event.sequence);
  out.append(R"(,"tier":")");
  out.append(to_string(event.tier));
  out.append(R"(","data":)");
  std::visit(DataWriter{out}, event.data);
  out.append("}\n");
}

}  // namespace cairn
