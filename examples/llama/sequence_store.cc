#include "examples/llama/sequence_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace {

constexpr size_t kPiece = 65536;      // bytes
constexpr size_t kPiecesAtOnce = 16;  // a quarter of the blocks in memory
constexpr uint64_t kTimeoutMs = 10000;
constexpr uint64_t kMagic = 0x31716573'6c6c6143;  // "Callseq1"

struct Header {
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

// FNV-1a.
uint64_t hash_of(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) {
    hash = (hash ^ byte) * 0x100000001b3;
  }
  return hash;
}

void must(int32_t code, const cairn_error& failure) {
  if (code != CAIRN_OK) {
    throw std::runtime_error(failure.message);
  }
}

struct Release {
  void operator()(cairn_blocks* blocks) const { cairn_blocks_release(blocks); }
  void operator()(cairn_future* future) const { cairn_future_destroy(future); }
};
using Blocks = std::unique_ptr<cairn_blocks, Release>;
using Future = std::unique_ptr<cairn_future, Release>;

std::vector<uint32_t> ids_of(const Blocks& blocks) {
  std::vector<uint32_t> ids(cairn_blocks_count(blocks.get()));
  (void)cairn_blocks_ids(blocks.get(), ids.data(), ids.size());
  return ids;
}

}  // namespace

SequenceStore::SequenceStore(const std::string& path, const std::string& size, const std::string& model) {
  // A block is a piece: one row of bytes. The device is memory of this process, through which pieces go to the file and back.
  const std::string config =
      "block_size = 1\n"
      "[model]\n"
      "name = '" +
      model +
      "'\n"
      "layers = 1\n"
      "kv = 1\n"
      "heads = 1\n"
      "head_size = " +
      std::to_string(kPiece) +
      "\n"
      "element_type = 'uint8'\n"
      "[device]\n"
      "memory = 'system'\n"
      "blocks = " +
      std::to_string(4 * kPiecesAtOnce) +
      "\n"
      "[disk]\n"
      "path = '" +
      path +
      "'\n"
      "size = '" +
      size +
      "'\n"
      "[offload.disk]\n"
      "mode = 'off'\n";
  cairn_error failure = CAIRN_INIT(cairn_error);
  cairn_manager_options options = CAIRN_INIT(cairn_manager_options);
  options.config = config.c_str();
  cairn_manager* manager = nullptr;
  must(cairn_manager_create(&options, &manager, &failure), failure);
  manager_.reset(manager);
}

std::vector<cairn_key> SequenceStore::keys(std::span<const int32_t> tokens, size_t count) const {
  std::string salt = "llama.cpp sequence";
  for (const int32_t token : tokens) {
    salt += ' ' + std::to_string(token);
  }
  std::vector<uint32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<uint32_t>(i);
  }
  cairn_prompt prompt = CAIRN_INIT(cairn_prompt);
  prompt.tokens = numbers.data();
  prompt.token_count = count;
  prompt.salt = salt.c_str();
  std::vector<cairn_key> made(count);
  size_t full = 0;
  cairn_error failure = CAIRN_INIT(cairn_error);
  must(cairn_manager_hash_prompt(manager_.get(), &prompt, made.data(), count, &full, &failure), failure);
  return made;
}

uint8_t* SequenceStore::address(uint32_t block_id) const {
  void* found = nullptr;
  cairn_error failure = CAIRN_INIT(cairn_error);
  must(cairn_manager_address(manager_.get(), CAIRN_G1, block_id, 0, 0, 0, 0, &found, &failure), failure);
  return static_cast<uint8_t*>(found);
}

void SequenceStore::save(std::span<const int32_t> tokens, std::span<const uint8_t> state) {
  if (restore(tokens)) {
    return;
  }
  const Header header{.bytes = state.size(), .hash = hash_of(state)};
  std::vector<uint8_t> bytes(sizeof header + state.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(state.begin(), state.end(), bytes.begin() + sizeof header);
  const std::vector<cairn_key> all = keys(tokens, (bytes.size() + kPiece - 1) / kPiece);
  // Pieces that are left of a damaged state would count as stored.
  cairn_error failure = CAIRN_INIT(cairn_error);
  for (const uint32_t level : {CAIRN_G1, CAIRN_G3}) {
    must(cairn_manager_reset_keys(manager_.get(), level, all.data(), all.size(), nullptr, &failure), failure);
  }
  for (size_t first = 0; first < all.size(); first += kPiecesAtOnce) {
    const size_t count = std::min(kPiecesAtOnce, all.size() - first);
    const size_t begin = first * kPiece;
    save_pieces(std::span(all).subspan(first, count),
                std::span(bytes).subspan(begin, std::min(count * kPiece, bytes.size() - begin)));
  }
}

void SequenceStore::save_pieces(std::span<const cairn_key> keys, std::span<const uint8_t> bytes) {
  cairn_error failure = CAIRN_INIT(cairn_error);
  cairn_blocks* allocated = nullptr;
  must(cairn_manager_allocate(manager_.get(), CAIRN_G1, static_cast<uint32_t>(keys.size()), &allocated, &failure),
       failure);
  const Blocks blocks(allocated);
  const std::vector<uint32_t> ids = ids_of(blocks);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::span<const uint8_t> piece = bytes.subspan(i * kPiece, std::min(kPiece, bytes.size() - i * kPiece));
    uint8_t* const to = address(ids[i]);
    std::memcpy(to, piece.data(), piece.size());
    std::memset(to + piece.size(), 0, kPiece - piece.size());
  }
  must(cairn_blocks_register(blocks.get(), keys.data(), keys.size(), nullptr, &failure), failure);
  cairn_offload_options options = CAIRN_INIT(cairn_offload_options);
  options.keys = keys.data();
  options.key_count = keys.size();
  options.deadline_ms = kTimeoutMs;
  cairn_future* started = nullptr;
  must(cairn_manager_start_offload(manager_.get(), CAIRN_G3, &options, &started, &failure), failure);
  const Future offload(started);
  cairn_future_outcome outcome = CAIRN_INIT(cairn_future_outcome);
  must(cairn_future_wait(offload.get(), kTimeoutMs + 1000, &outcome, &failure), failure);
  if (outcome.blocks != keys.size()) {
    throw std::runtime_error("not all pieces of the state could be written to the file");
  }
}

std::optional<std::vector<uint8_t>> SequenceStore::restore(std::span<const int32_t> tokens) {
  std::vector<uint8_t> bytes(kPiece);
  if (!restore_pieces(keys(tokens, 1), bytes)) {
    return std::nullopt;
  }
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.bytes > uint64_t{1} << 40) {
    return std::nullopt;
  }
  const size_t pieces = (sizeof header + header.bytes + kPiece - 1) / kPiece;
  bytes.resize(pieces * kPiece);
  const std::vector<cairn_key> all = keys(tokens, pieces);
  if (!restore_pieces(std::span(all).subspan(1), std::span(bytes).subspan(kPiece))) {
    return std::nullopt;
  }
  std::vector<uint8_t> state(bytes.begin() + sizeof header,
                             bytes.begin() + static_cast<std::ptrdiff_t>(sizeof header + header.bytes));
  return hash_of(state) == header.hash ? std::optional(std::move(state)) : std::nullopt;
}

bool SequenceStore::restore_pieces(std::span<const cairn_key> keys, std::span<uint8_t> bytes) {
  for (size_t first = 0; first < keys.size(); first += kPiecesAtOnce) {
    const size_t count = std::min(kPiecesAtOnce, keys.size() - first);
    cairn_error failure = CAIRN_INIT(cairn_error);
    cairn_blocks* loaded = nullptr;
    must(cairn_manager_load(manager_.get(), keys.data() + first, count, kTimeoutMs, &loaded, &failure), failure);
    const Blocks blocks(loaded);
    const std::vector<uint32_t> ids = ids_of(blocks);
    if (ids.size() != count) {
      return false;
    }
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(bytes.data() + (first + i) * kPiece, address(ids[i]), kPiece);
    }
  }
  return true;
}
