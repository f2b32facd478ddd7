// Trace: the requests of a trace file, ready to be run through caches many times.
//
// Does:     every block that occurs has a number, counted from 0 in the order of appearance, and a BlockKey that chains
//           its id to those before it; a request is the numbers of its blocks. Files may be compressed with gzip.
// Owner:    a value; immutable once loaded, so that threads share it.
// Costs:    the file is streamed; in memory 4 bytes a reference and about 60 a distinct block.
// Fails:    load() on a file that cannot be read or has no good row. Bad rows are left out, counted, and the first one
//           is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/trace/trace_row.h"

namespace cairn::lab {

// What a trace's blocks hold unless it is said: Mooncake's.
inline constexpr std::uint32_t kTraceBlockSize = 512;

class Trace {
 public:
  static constexpr std::uint32_t kNoSession = ~std::uint32_t{0};
  struct Request {
    std::uint64_t first = 0;   // of its references
    std::uint32_t blocks = 0;  // references
    std::uint64_t tokens = 0;  // of the prompt, the last block's included
    double time_ms = 0;
    std::uint32_t session = kNoSession;  // from 0, in the order of appearance
  };

  // Told now and then how much of the file has been read, in bytes as they are on disk.
  using Progress = std::function<void(std::uint64_t bytes)>;

  [[nodiscard]] static Result<Trace> load(const std::string& path, std::uint32_t block_size,
                                          const Progress& progress = {});
  // An empty one to which requests are added.
  Trace(std::string name, std::uint32_t block_size) : name_(std::move(name)), block_size_(block_size) {}

  // Fails, with nothing added: no blocks, a block deeper than a key can say, too many blocks.
  [[nodiscard]] Status add(const trace::TraceRow& row);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }
  [[nodiscard]] std::span<const Request> requests() const { return requests_; }
  [[nodiscard]] std::span<const std::uint32_t> blocks_of(const Request& request) const {
    return std::span(references_).subspan(request.first, request.blocks);
  }
  // Tokens of the first `blocks` blocks of a request: all are full but the last.
  [[nodiscard]] std::uint64_t tokens_in(const Request& request, std::uint32_t blocks) const {
    return blocks == request.blocks ? request.tokens : std::uint64_t{blocks} * block_size_;
  }
  [[nodiscard]] std::uint64_t reference_count() const { return references_.size(); }
  [[nodiscard]] std::uint32_t session_count() const { return static_cast<std::uint32_t>(sessions_.size()); }
  [[nodiscard]] std::uint32_t unique_blocks() const { return static_cast<std::uint32_t>(keys_.size()); }
  [[nodiscard]] const BlockKey& key(std::uint32_t block) const { return keys_[block]; }
  static constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};
  // The block before it; kNoBlock at the beginning of a sequence.
  [[nodiscard]] std::uint32_t parent(std::uint32_t block) const { return parents_[block]; }
  // kNoBlock where none has that key.
  [[nodiscard]] std::uint32_t find(const BlockKey& key) const;

  [[nodiscard]] std::uint64_t bad_rows() const { return bad_rows_; }
  // "line 12: no hash_ids, or none in them"; empty where every row was good.
  [[nodiscard]] const std::string& first_bad_row() const { return first_bad_row_; }

 private:
  void note_bad(const std::string& error);

  std::string name_;
  std::uint32_t block_size_;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> references_;
  std::vector<BlockKey> keys_;
  std::vector<std::uint32_t> parents_;
  std::unordered_map<BlockKey, std::uint32_t> numbers_;
  std::unordered_map<std::string, std::uint32_t> sessions_;
  std::uint64_t bad_rows_ = 0;
  std::string first_bad_row_;
};

}  // namespace cairn::lab
