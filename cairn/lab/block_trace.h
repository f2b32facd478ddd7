// Trace: the requests of a trace file, ready to be run through caches many times.
//
// Each distinct block has a number, counted from 0 in the order of appearance, and a BlockKey that chains its id to
// those before it. A request is the numbers of its blocks. Files may be compressed with gzip.
//
// Thread safety: immutable once loaded; threads may share it.
// Errors: load() fails if the file cannot be read or has no valid row. Invalid rows are skipped and counted; the first
// is named.
// Complexity: the file is streamed; in memory 4 bytes a reference and about 60 a distinct block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/evict/request_ending.h"
#include "cairn/tokens/block_key.h"
#include "cairn/trace/trace_row.h"

namespace cairn::lab {

// Tokens in a block of a trace unless given otherwise: those of Mooncake's traces.
inline constexpr std::uint32_t kTraceBlockSize = 512;

class Trace {
 public:
  static constexpr std::uint32_t kNoSession = ~std::uint32_t{0};
  struct Request {
    std::uint64_t first = 0;   // index of its first reference
    std::uint32_t blocks = 0;  // how many references
    std::uint64_t tokens = 0;  // of the prompt
    double time_ms = 0;
    std::uint32_t session = kNoSession;  // from 0, in the order of appearance
    RequestEnding ending = RequestEnding::kUnknown;
  };

  // Called now and then with the bytes of the file that were read so far.
  using Progress = std::function<void(std::uint64_t bytes)>;

  [[nodiscard]] static Result<Trace> load(const std::string& path, std::uint32_t block_size,
                                          const Progress& progress = {});
  // An empty trace.
  Trace(std::string name, std::uint32_t block_size) : name_(std::move(name)), block_size_(block_size) {}

  // Adds a request. Fails if it has no blocks, or more than a key or a trace can number.
  [[nodiscard]] Status add(const trace::TraceRow& row);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }
  [[nodiscard]] std::span<const Request> requests() const { return requests_; }
  [[nodiscard]] std::span<const std::uint32_t> blocks_of(const Request& request) const {
    return std::span(references_).subspan(request.first, request.blocks);
  }
  // Tokens in the first `blocks` blocks of a request. All but its last block are full.
  [[nodiscard]] std::uint64_t tokens_in(const Request& request, std::uint32_t blocks) const {
    return blocks == request.blocks ? request.tokens : std::uint64_t{blocks} * block_size_;
  }
  [[nodiscard]] std::uint64_t reference_count() const { return references_.size(); }
  [[nodiscard]] std::uint32_t session_count() const { return static_cast<std::uint32_t>(sessions_.size()); }
  [[nodiscard]] std::uint32_t unique_blocks() const { return static_cast<std::uint32_t>(keys_.size()); }
  [[nodiscard]] const BlockKey& key(std::uint32_t block) const { return keys_[block]; }
  static constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};
  // The block before it; kNoBlock for the first block of a sequence.
  [[nodiscard]] std::uint32_t parent(std::uint32_t block) const { return parents_[block]; }
  // kNoBlock if no block has that key.
  [[nodiscard]] std::uint32_t find(const BlockKey& key) const;

  // Requests of which the trace says how they ended.
  [[nodiscard]] std::uint64_t known_endings() const { return known_endings_; }

  [[nodiscard]] std::uint64_t bad_rows() const { return bad_rows_; }
  // "line 12: no hash_ids, or none in them"; empty if every row was valid.
  [[nodiscard]] const std::string& first_bad_row() const { return first_bad_row_; }

 private:
  void count_bad_row(const std::string& error);

  std::string name_;
  std::uint32_t block_size_;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> references_;
  std::vector<BlockKey> keys_;
  std::vector<std::uint32_t> parents_;
  std::unordered_map<BlockKey, std::uint32_t> numbers_;
  std::unordered_map<std::string, std::uint32_t> sessions_;
  std::uint64_t known_endings_ = 0;
  std::uint64_t bad_rows_ = 0;
  std::string first_bad_row_;
};

}  // namespace cairn::lab
