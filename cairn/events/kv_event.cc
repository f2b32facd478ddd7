#include "cairn/events/kv_event.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"
#include "cairn/events/msgpack.h"

namespace cairn {

namespace {

using internal::MsgpackReader;
using internal::MsgpackWriter;
using Type = MsgpackReader::Type;

constexpr std::string_view kDynamoSalt = "dynamo-cache-salt:";  // how Dynamo's front end marks a salt

// What engines call their tiers.
constexpr std::pair<std::string_view, CacheLevel> kMedia[] = {
    {"GPU", CacheLevel::kG1},        {"DEVICE", CacheLevel::kG1},    {"CPU", CacheLevel::kG2},
    {"CPU_PINNED", CacheLevel::kG2}, {"CPU_TIER1", CacheLevel::kG2}, {"CPU_TIER2", CacheLevel::kG3},
    {"DISK", CacheLevel::kG3},       {"NVME", CacheLevel::kG3},      {"STORAGE", CacheLevel::kG3},
    {"EXTERNAL", CacheLevel::kG4},   {"NETWORK", CacheLevel::kG4},   {"REMOTE", CacheLevel::kG4},
    {"SHARED", CacheLevel::kG4},
};

// --- reading ---

// The fields of an event of vLLM or SGLang, of any type.
struct Fields {
  std::string_view type = {};
  KvStored stored = {};  // its hashes are those of a removal too
  CacheLevel tier = CacheLevel::kG1;
  std::optional<std::uint32_t> group = {};
  bool is_ignored = false;  // it is not of a tier of this machine that we know
};

std::uint64_t read_hash(MsgpackReader& reader) {
  if (reader.type() != Type::kBytes) {
    return reader.number();
  }
  const std::string_view bytes = reader.bytes();
  if (bytes.size() < 8) {
    reader.fail();
    return 0;
  }
  std::uint64_t value = 0;
  for (const char byte : bytes.substr(bytes.size() - 8)) {
    value = (value << 8) | static_cast<std::uint8_t>(byte);
  }
  return value;
}

std::vector<std::uint64_t> read_hashes(MsgpackReader& reader) {
  const std::size_t count = reader.array();
  std::vector<std::uint64_t> hashes(count);
  for (std::uint64_t& hash : hashes) {
    hash = read_hash(reader);
  }
  return hashes;
}

// Of a pair, which stands for two consecutive tokens (speculative decoding), the first.
std::vector<Token> read_tokens(MsgpackReader& reader) {
  std::vector<Token> tokens(reader.array());
  for (Token& token : tokens) {
    if (reader.type() != Type::kArray) {
      token = reader.small_number();
      continue;
    }
    if (reader.array() != 2) {
      reader.fail();
    }
    token = reader.small_number();
    reader.skip();
  }
  return tokens;
}

void read_medium(std::string_view text, Fields& fields) {
  const auto* const found = std::ranges::find(kMedia, text, &std::pair<std::string_view, CacheLevel>::first);
  if (found == std::end(kMedia)) {
    fields.is_ignored = true;
  } else {
    fields.tier = found->second;
  }
}

void read_field(std::string_view name, MsgpackReader& reader, Fields& fields) {
  KvStored& stored = fields.stored;
  if (name == "type") {
    fields.type = reader.text();
  } else if (name == "block_hashes") {
    stored.hashes = read_hashes(reader);
  } else if (reader.take_nil()) {
    return;  // as if it were left out
  } else if (name == "parent_block_hash") {
    stored.parent = read_hash(reader);
  } else if (name == "token_ids") {
    stored.token_ids = read_tokens(reader);
  } else if (name == "block_size") {
    stored.block_size = reader.small_number();
  } else if (name == "lora_id") {
    stored.lora_id = static_cast<std::int64_t>(reader.number());
  } else if (name == "medium") {
    read_medium(reader.text(), fields);
  } else if (name == "lora_name") {
    stored.lora_name = reader.text();
  } else if (name == "cache_salt") {
    stored.cache_salt = reader.text();
  } else if (name == "extra_keys") {
    const std::size_t count = reader.array();
    stored.extra_keys.reserve(count);
    for (std::size_t i = 0; i < count && reader.good(); ++i) {
      stored.extra_keys.emplace_back(reader.skip());
    }
  } else if (name == "group_idx") {
    fields.group = reader.small_number();
  } else if (name == "kv_cache_spec_kind") {
    stored.attention = reader.text();
  } else if (name == "kv_cache_spec_sliding_window") {
    stored.window = reader.small_number();
  } else if (name == "locality") {
    fields.is_ignored |= reader.text() != "LOCAL";
  } else {
    reader.skip();
  }
}

// Fields of events that are arrays, in their order. Old events of SGLang may have a map where vLLM's have lora_name.
constexpr std::string_view kStoredFields[] = {
    "type",    "block_hashes", "parent_block_hash", "token_ids", "block_size",         "lora_id",
    "medium",  "lora_name",    "extra_keys",        "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
    "locality"};
constexpr std::string_view kRemovedFields[] = {"type", "block_hashes", "medium", "group_idx", "locality"};

void read_array_event(MsgpackReader& reader, Fields& fields) {
  const std::size_t count = reader.array();
  for (std::size_t i = 0; i < count && reader.good(); ++i) {
    const bool is_removed = fields.type == "BlockRemoved";
    const std::size_t known = is_removed ? std::size(kRemovedFields) : std::size(kStoredFields);
    if (i >= known || reader.type() == Type::kMap) {
      reader.skip();
      continue;
    }
    read_field(is_removed ? kRemovedFields[i] : kStoredFields[i], reader, fields);
  }
}

void add_event(Fields&& fields, KvEventBatch& batch) {
  KvStored& stored = fields.stored;
  if (fields.type == "AllBlocksCleared") {
    batch.events.push_back({.data = KvCleared{}});
    return;
  }
  const bool is_stored = fields.type == "BlockStored";
  if ((!is_stored && fields.type != "BlockRemoved") || fields.is_ignored || stored.hashes.empty()) {
    ++batch.ignored;
    return;
  }
  if (!is_stored) {
    batch.events.push_back({.data = KvRemoved{std::move(stored.hashes)}, .tier = fields.tier, .group = fields.group});
    return;
  }
  const std::size_t blocks = stored.hashes.size();
  const bool has_tokens = stored.block_size != 0 && stored.token_ids.size() / stored.block_size == blocks &&
                          stored.token_ids.size() % stored.block_size == 0;
  if (!has_tokens || (!stored.extra_keys.empty() && stored.extra_keys.size() != blocks)) {
    stored.token_ids.clear();  // of which block they are is unknown
    stored.extra_keys.clear();
  }
  batch.events.push_back({.data = std::move(stored), .tier = fields.tier, .group = fields.group});
}

// --- reading TensorRT-LLM's ---

constexpr CacheLevel kTrtLevels[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3};

struct TrtBlock {
  std::uint64_t hash = 0;
  std::vector<Token> tokens = {};
  std::uint32_t level = 0;
  std::optional<std::int64_t> lora_id = {};
  std::string salt = {};
  std::string extra_keys = {};  // mm_keys, as they are
};

TrtBlock read_trt_block(MsgpackReader& reader) {
  TrtBlock block;
  const std::size_t fields = reader.map();
  for (std::size_t i = 0; i < fields && reader.good(); ++i) {
    const std::string_view name = reader.text();
    if (reader.take_nil()) {
      continue;
    }
    if (name == "block_hash") {
      block.hash = read_hash(reader);
    } else if (name == "cache_level") {
      block.level = reader.small_number();
    } else if (name == "lora_id") {
      block.lora_id = static_cast<std::int64_t>(reader.number());
    } else if (name == "cache_salt") {
      block.salt = reader.text();
    } else if (name == "mm_keys") {
      const std::string_view keys = reader.skip();
      block.extra_keys = keys == "\x90" ? std::string_view() : keys;  // an empty list
    } else if (name == "tokens") {
      block.tokens.resize(reader.array());
      for (Token& token : block.tokens) {
        const std::size_t parts = reader.map();
        for (std::size_t part = 0; part < parts && reader.good(); ++part) {
          if (reader.text() == "token_id") {
            token = reader.small_number();
          } else {
            reader.skip();
          }
        }
      }
    } else {
      reader.skip();
    }
  }
  return block;
}

// {"type":"event_diff","new_value":1,"old_value":0}
std::pair<std::uint32_t, std::uint32_t> read_trt_levels(MsgpackReader& reader) {
  std::pair<std::uint32_t, std::uint32_t> levels;
  const std::size_t fields = reader.map();
  for (std::size_t i = 0; i < fields && reader.good(); ++i) {
    const std::string_view name = reader.text();
    if (name == "old_value") {
      levels.first = reader.small_number();
    } else if (name == "new_value") {
      levels.second = reader.small_number();
    } else {
      reader.skip();
    }
  }
  return levels;
}

// One event for each run of blocks of one level, size, adapter and salt.
void add_trt_stored(std::optional<std::uint64_t> parent, std::vector<TrtBlock>&& blocks, KvEventBatch& batch) {
  const TrtBlock* before = nullptr;
  for (TrtBlock& block : blocks) {
    if (block.level >= std::size(kTrtLevels)) {
      ++batch.ignored;
      parent = block.hash;
      before = nullptr;
      continue;
    }
    const bool continues = before != nullptr && before->level == block.level && before->lora_id == block.lora_id &&
                           before->salt == block.salt && before->tokens.size() == block.tokens.size();
    if (!continues) {
      KvStored stored{.parent = parent,
                      .block_size = static_cast<std::uint32_t>(block.tokens.size()),
                      .lora_id = block.lora_id,
                      .lora_name = block.lora_id ? std::to_string(*block.lora_id) : std::string(),
                      .cache_salt = block.salt};
      batch.events.push_back({.data = std::move(stored), .tier = kTrtLevels[block.level]});
    }
    auto& stored = std::get<KvStored>(batch.events.back().data);
    stored.hashes.push_back(block.hash);
    stored.token_ids.insert(stored.token_ids.end(), block.tokens.begin(), block.tokens.end());
    if (!block.extra_keys.empty() || !stored.extra_keys.empty()) {
      stored.extra_keys.resize(stored.hashes.size(), "\xc0");
      if (!block.extra_keys.empty()) {
        stored.extra_keys.back() = block.extra_keys;
      }
    }
    parent = block.hash;
    before = &block;
  }
}

// `data` of an event: created, stored, removed or updated.
void read_trt_data(MsgpackReader& reader, KvEventBatch& batch) {
  std::string_view type;
  std::optional<std::uint64_t> parent;
  std::vector<TrtBlock> blocks;
  std::vector<std::uint64_t> hashes;
  std::uint64_t updated = 0;
  std::optional<std::pair<std::uint32_t, std::uint32_t>> levels;
  const std::size_t fields = reader.map();
  for (std::size_t i = 0; i < fields && reader.good(); ++i) {
    const std::string_view name = reader.text();
    if (reader.take_nil()) {
      continue;
    }
    if (name == "type") {
      type = reader.text();
    } else if (name == "parent_hash") {
      parent = read_hash(reader);
    } else if (name == "block_hashes") {
      hashes = read_hashes(reader);
    } else if (name == "block_hash") {
      updated = read_hash(reader);
    } else if (name == "cache_level") {
      levels = read_trt_levels(reader);
    } else if (name == "blocks") {
      const std::size_t count = reader.array();
      for (std::size_t block = 0; block < count && reader.good(); ++block) {
        blocks.push_back(read_trt_block(reader));
      }
    } else {
      reader.skip();
    }
  }
  if (!reader.good()) {
    return;
  }
  if (type == "stored" && !blocks.empty()) {
    add_trt_stored(parent, std::move(blocks), batch);
  } else if (type == "removed" && !hashes.empty()) {
    // A block is in one level at a time, and the event does not say in which.
    for (const CacheLevel level : kTrtLevels) {
      batch.events.push_back({.data = KvRemoved{hashes}, .tier = level});
    }
  } else if (type == "updated" && levels && levels->first < std::size(kTrtLevels) &&
             levels->second < std::size(kTrtLevels)) {
    batch.events.push_back({.data = KvStored{.hashes = {updated}}, .tier = kTrtLevels[levels->second]});
    batch.events.push_back({.data = KvRemoved{{updated}}, .tier = kTrtLevels[levels->first]});
  } else if (type != "created") {
    ++batch.ignored;
  }
}

void read_map_event(MsgpackReader& reader, KvEventBatch& batch) {
  Fields fields;
  bool is_trt = false;
  const std::size_t count = reader.map();
  for (std::size_t i = 0; i < count && reader.good(); ++i) {
    const std::string_view name = reader.text();
    if (name == "data") {
      is_trt = true;
      read_trt_data(reader, batch);
    } else if (name == "attention_dp_rank" && !reader.take_nil()) {
      batch.dp_rank = reader.small_number();
    } else {
      read_field(name, reader, fields);
    }
  }
  if (reader.good() && !is_trt) {
    add_event(std::move(fields), batch);
  }
}

// --- writing ---

void write_optional(MsgpackWriter& writer, const std::string& text) {
  if (text.empty()) {
    writer.nil();
  } else {
    writer.text(text);
  }
}

void write_hashes(MsgpackWriter& writer, const std::vector<std::uint64_t>& hashes) {
  writer.text("block_hashes");
  writer.array(hashes.size());
  for (const std::uint64_t hash : hashes) {
    writer.unsigned_number(hash);
  }
}

struct VllmWriter {
  MsgpackWriter& writer;
  const KvEvent& event;

  void operator()(const KvStored& stored) const {
    const bool has_extra = !stored.extra_keys.empty();
    writer.map(8 + has_extra + event.group.has_value() + !stored.attention.empty() + stored.window.has_value());
    writer.text("type");
    writer.text("BlockStored");
    write_hashes(writer, stored.hashes);
    writer.text("parent_block_hash");
    if (stored.parent) {
      writer.unsigned_number(*stored.parent);
    } else {
      writer.nil();
    }
    writer.text("token_ids");
    writer.array(stored.token_ids.size());
    for (const Token token : stored.token_ids) {
      writer.unsigned_number(token);
    }
    writer.text("block_size");
    writer.unsigned_number(stored.block_size);
    writer.text("lora_id");
    if (stored.lora_id) {
      writer.signed_number(*stored.lora_id);
    } else {
      writer.nil();
    }
    writer.text("medium");
    writer.text(medium_of(event.tier));
    writer.text("lora_name");
    write_optional(writer, stored.lora_name);
    if (has_extra) {
      writer.text("extra_keys");
      writer.array(stored.extra_keys.size());
      for (const std::string& keys : stored.extra_keys) {
        writer.raw(keys);
      }
    }
    write_group();
    if (!stored.attention.empty()) {
      writer.text("kv_cache_spec_kind");
      writer.text(stored.attention);
    }
    if (stored.window) {
      writer.text("kv_cache_spec_sliding_window");
      writer.unsigned_number(*stored.window);
    }
  }

  void operator()(const KvRemoved& removed) const {
    writer.map(3 + event.group.has_value());
    writer.text("type");
    writer.text("BlockRemoved");
    write_hashes(writer, removed.hashes);
    writer.text("medium");
    writer.text(medium_of(event.tier));
    write_group();
  }

  void operator()(const KvCleared&) const {
    writer.map(1);
    writer.text("type");
    writer.text("AllBlocksCleared");
  }

  void write_group() const {
    if (event.group) {
      writer.text("group_idx");
      writer.unsigned_number(*event.group);
    }
  }
};

// --- extra keys ---

// The hash of a multimodal item: the first 16 of the 64 hexadecimal digits of its identifier.
std::optional<std::uint64_t> mm_hash_of(std::string_view identifier) {
  if (identifier.size() != 64) {
    return std::nullopt;
  }
  std::uint64_t hash = 0;
  const char* const end = identifier.data() + 16;
  const auto [at, error] = std::from_chars(identifier.data(), end, hash, 16);
  return error == std::errc() && at == end ? std::optional(hash) : std::nullopt;
}

struct ExtraKeys {
  std::string_view salt = {};
  std::vector<std::uint64_t> mm_hashes = {};
  bool has_items = false;  // images, embeddings: what the tokens do not show
};

// [adapter, (item, offset)..., salt], of which each may be missing.
ExtraKeys read_extra_keys(std::string_view bytes, std::string_view lora_name) {
  ExtraKeys keys;
  MsgpackReader reader(bytes);
  if (reader.type() != Type::kArray) {
    keys.has_items = reader.type() != Type::kNil;
    return keys;
  }
  const std::size_t count = reader.array();
  for (std::size_t i = 0; i < count && reader.good(); ++i) {
    keys.has_items |= reader.type() != Type::kText;
    if (reader.type() == Type::kArray) {
      MsgpackReader item(reader.skip());
      if (item.array() > 0 && item.type() == Type::kText) {
        if (const auto hash = mm_hash_of(item.text())) {
          keys.mm_hashes.push_back(*hash);
        }
      }
      continue;
    }
    if (reader.type() != Type::kText) {
      reader.skip();
      continue;
    }
    const std::string_view text = reader.text();
    if (i == 0 && !lora_name.empty() && text == lora_name) {
      continue;
    }
    if (const auto hash = mm_hash_of(text)) {
      keys.has_items = true;
      keys.mm_hashes.push_back(*hash);
    } else {
      keys.salt = text.starts_with(kDynamoSalt) ? text.substr(kDynamoSalt.size()) : text;
    }
  }
  return keys;
}

}  // namespace

Result<KvEventBatch> decode_kv_events(std::string_view bytes) {
  MsgpackReader reader(bytes);
  KvEventBatch batch;
  const std::size_t parts = reader.array();
  if (!reader.good() || parts < 2) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a batch of events of ", bytes.size(),
                                                     " bytes is not [time, [event, ...], rank] in MessagePack"));
  }
  batch.time = reader.real();
  const std::size_t count = reader.array();
  for (std::size_t i = 0; i < count && reader.good(); ++i) {
    if (reader.type() == Type::kArray) {
      Fields fields;
      read_array_event(reader, fields);
      if (reader.good()) {
        add_event(std::move(fields), batch);
      }
    } else {
      read_map_event(reader, batch);
    }
    if (!reader.good()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("event ", i, " of ", count, " in a batch of ", bytes.size(),
                          " bytes is cut off, or a field of it has another type than in the events of known engines"));
    }
  }
  if (parts > 2 && !reader.take_nil()) {
    batch.dp_rank = reader.small_number();
  }
  for (std::size_t i = 3; i < parts; ++i) {
    reader.skip();
  }
  if (!reader.good() || !reader.at_end()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a batch of events of ", bytes.size(), " bytes does not end after its data parallel rank"));
  }
  return batch;
}

void append_vllm(const KvEventBatch& batch, std::string& out) {
  MsgpackWriter writer(out);
  writer.array(batch.dp_rank ? 3 : 2);
  writer.real(batch.time);
  writer.array(batch.events.size());
  for (const KvEvent& event : batch.events) {
    std::visit(VllmWriter{writer, event}, event.data);
  }
  if (batch.dp_rank) {
    writer.unsigned_number(*batch.dp_rank);
  }
}

std::string salt_of(const KvStored& stored) {
  if (!stored.cache_salt.empty() || stored.extra_keys.empty()) {
    return stored.cache_salt;
  }
  return std::string(read_extra_keys(stored.extra_keys.front(), stored.lora_name).salt);
}

bool has_items(const KvStored& stored, std::size_t block) {
  return !stored.extra_keys.empty() && read_extra_keys(stored.extra_keys[block], stored.lora_name).has_items;
}

std::vector<BlockHash> local_hashes(const KvStored& stored, std::string_view salt) {
  if (stored.token_ids.empty()) {
    return {};
  }
  std::vector<std::vector<std::uint64_t>> mm_hashes;
  for (const std::string& keys : stored.extra_keys) {
    mm_hashes.push_back(read_extra_keys(keys, stored.lora_name).mm_hashes);
  }
  std::vector<BlockHash> hashes(stored.hashes.size());
  const RouterHashing hashing{.block_size = stored.block_size, .seed = salt_hash(salt, stored.lora_name)};
  if (!router_hashes(stored.token_ids, hashing, hashes, mm_hashes)) {
    hashes.clear();
  }
  return hashes;
}

void append_router_json(const RouterEventId& id, const KvEvent& event, const std::vector<BlockHash>& local,
                        std::string& out) {
  constexpr const char* kTiers[kCacheLevels] = {"device", "host_pinned", "disk", "external"};
  JsonWriter json(out);
  json.begin_object();
  json.field("worker_id", id.worker_id);
  json.field("storage_tier", kTiers[index_of(event.tier)]);
  json.begin_object("event");
  json.field("event_id", id.event_id);
  json.key("data");
  if (const auto* const stored = std::get_if<KvStored>(&event.data)) {
    json.begin_object();
    json.begin_object("stored");
    json.key("parent_hash");
    if (stored->parent) {
      json.value(*stored->parent);
    } else {
      json.value(nullptr);
    }
    json.key("start_position");
    json.value(nullptr);
    json.begin_array("blocks");
    for (std::size_t i = 0; i < stored->hashes.size(); ++i) {
      json.begin_object();
      json.field("block_hash", stored->hashes[i]);
      json.field("tokens_hash", local.empty() ? std::uint64_t{0} : value_of(local[i]));
      json.key("mm_extra_info");
      json.value(nullptr);
      json.end_object();
    }
    json.end_array();
    json.end_object();
    json.end_object();
  } else if (const auto* const removed = std::get_if<KvRemoved>(&event.data)) {
    json.begin_object();
    json.begin_object("removed");
    json.begin_array("block_hashes");
    for (const std::uint64_t hash : removed->hashes) {
      json.value(hash);
    }
    json.end_array();
    json.end_object();
    json.end_object();
  } else {
    json.value("cleared");
  }
  json.field("dp_rank", id.dp_rank);
  json.end_object();
  json.end_object();
  out.push_back('\n');
}

std::string_view medium_of(CacheLevel tier) {
  constexpr std::string_view kNames[kCacheLevels] = {"GPU", "CPU", "STORAGE", "EXTERNAL"};
  return kNames[index_of(tier)];
}

}  // namespace cairn
