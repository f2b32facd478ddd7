// KvEvent: what a process says of its KV cache on a stream, in the form that engines publish: vLLM, SGLang, TensorRT-LLM, and
// Cairn itself (event_stream.h). Blocks are named by 64-bit hashes that only the publisher can explain.
//
// A batch on the wire is MessagePack: [time, [event, ...], data parallel rank]. decode_kv_events() reads
//
//   vLLM 0.24 and later, SGLang   events are maps with a "type": BlockStored, BlockRemoved, AllBlocksCleared
//   vLLM 0.9 to 0.23              events are arrays that begin with the type
//   TensorRT-LLM                  events are the maps of get_kv_cache_events(): event_id, data, attention_dp_rank. Put them into
//                                 a batch; "updated" becomes Stored in the new level and Removed from the old one
//
// append_vllm() writes the bytes that vLLM 0.32 writes for the same batch.
//
// Hashes: a byte string counts as the number that vLLM publishes in its place, its last 8 bytes; a negative number (SGLang) as
// its two's complement.
//
// Thread safety: plain values and functions.
// Errors: decode_kv_events() takes untrusted bytes. kInvalidArgument says what is wrong; nothing of the batch is used then. Events of
// unknown types, unknown media and of other machines (locality REMOTE) are left out and counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

// Consecutive blocks of one sequence are cached from now on.
struct KvStored {
  std::vector<std::uint64_t> hashes = {};    // at least one; each block is the parent of the next
  std::optional<std::uint64_t> parent = {};  // of the first block; std::nullopt at the start of a sequence
  std::vector<Token> token_ids = {};         // block_size for each block, or none if they are unknown
  std::uint32_t block_size = 0;              // tokens; 0 if it is unknown
  std::optional<std::int64_t> lora_id = {};  // of engines that name adapters by numbers
  std::string lora_name = {};                // empty if there is no adapter
  std::string cache_salt = {};               // empty if there is none, or if it is among the extra keys
  std::vector<std::string> extra_keys = {};  // one for each block, as MessagePack, or none
  std::string attention = {};                // kv_cache_spec_kind; empty if it was not given
  std::optional<std::uint32_t> window = {};  // kv_cache_spec_sliding_window

  friend bool operator==(const KvStored&, const KvStored&) = default;
};

// These blocks are no longer cached.
struct KvRemoved {
  std::vector<std::uint64_t> hashes = {};

  friend bool operator==(const KvRemoved&, const KvRemoved&) = default;
};

// Nothing is cached any more, in any tier of the publisher.
struct KvCleared {
  friend bool operator==(const KvCleared&, const KvCleared&) = default;
};

struct KvEvent {
  std::variant<KvStored, KvRemoved, KvCleared> data = {};
  CacheLevel tier = CacheLevel::kG1;        // "medium"; not of KvCleared
  std::optional<std::uint32_t> group = {};  // "group_idx": the KV cache group of the blocks

  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

struct KvEventBatch {
  double time = 0;  // seconds since 1970
  std::vector<KvEvent> events = {};
  std::optional<std::uint32_t> dp_rank = {};
  std::uint32_t ignored = 0;  // events that decode_kv_events() left out

  friend bool operator==(const KvEventBatch&, const KvEventBatch&) = default;
};

[[nodiscard]] Result<KvEventBatch> decode_kv_events(std::string_view bytes);
void append_vllm(const KvEventBatch& batch, std::string& out);

// What a router of Dynamo computes from an event to find its blocks: one hash for each block of `stored`, of its tokens, with
// the adapter, the salt and the multimodal items of the extra keys. `salt` is the salt of the sequence, which an event has only if it
// begins the sequence. No hashes if the tokens are unknown.
[[nodiscard]] std::vector<BlockHash> local_hashes(const KvStored& stored, std::string_view salt);
// The salt that the event itself names: cache_salt, or the salt among the extra keys of the first block.
[[nodiscard]] std::string salt_of(const KvStored& stored);
// Whether the extra keys of a block name images, embeddings or others that its tokens do not show.
[[nodiscard]] bool has_items(const KvStored& stored, std::size_t block);

// Appends one line of JSON, a RouterEvent of Dynamo 1.2 and later, and a newline. `local` has a hash for each stored block, or none.
//
//     {"worker_id":7,"storage_tier":"device","event":{"event_id":3,"data":{"stored":{"parent_hash":null,"start_position":null,
//         "blocks":[{"block_hash":1,"tokens_hash":2,"mm_extra_info":null}]}},"dp_rank":0}}
//     {"worker_id":7,"storage_tier":"host_pinned","event":{"event_id":4,"data":{"removed":{"block_hashes":[1]}},"dp_rank":0}}
//     {"worker_id":7,"storage_tier":"device","event":{"event_id":5,"data":"cleared","dp_rank":0}}
struct RouterEventId {
  std::uint64_t worker_id = 0;
  std::uint64_t event_id = 0;
  std::uint32_t dp_rank = 0;
};
void append_router_json(const RouterEventId& id, const KvEvent& event, const std::vector<BlockHash>& local,
                        std::string& out);

// "GPU", "CPU", "STORAGE", "EXTERNAL": what vLLM's events call a tier.
[[nodiscard]] std::string_view medium_of(CacheLevel tier);

}  // namespace cairn
