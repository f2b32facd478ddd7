#include "cairn/wire/rank_message.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cairn/base/byte_stream.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/hash/hash_bytes.h"

namespace cairn {
namespace {

struct FrameHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t kind = 0;
  std::uint32_t generation = 0;
  std::uint32_t payload_bytes = 0;
};
static_assert(PlainField<FrameHeader> && sizeof(FrameHeader) == 16);

constexpr std::uint32_t kMagic = 0x4B4E5243;  // "CRNK"
constexpr std::size_t kFrameBytes = sizeof(FrameHeader) + sizeof(std::uint64_t);

std::uint64_t hash_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  return hash_bytes(payload, hash_bytes(std::as_bytes(std::span(&header, 1)), 0));
}

// --- fields ---
void put_duration(ByteWriter& out, Duration duration) {
  out.put(static_cast<std::uint64_t>(std::max(duration, Duration::zero()).count()));
}

Duration get_duration(ByteReader& in) {
  const auto count = in.get<std::uint64_t>();
  if (count > static_cast<std::uint64_t>(Duration::max().count())) in.refuse();
  return in.good() ? Duration(static_cast<Duration::rep>(count)) : Duration::zero();
}

CacheLevel get_level(ByteReader& in) {
  const auto level = in.get<std::uint8_t>();
  if (level >= kCacheLevels) in.refuse();
  return in.good() ? static_cast<CacheLevel>(level) : CacheLevel::kG1;
}

RankClaim get_claim(ByteReader& in) {
  RankClaim claim;
  claim.rank = in.get<std::uint32_t>();
  claim.ranks.tensor = in.get<std::uint32_t>();
  claim.ranks.pipeline = in.get<std::uint32_t>();
  claim.layers = in.get<std::uint32_t>();
  const auto says_first = in.get<std::uint8_t>();
  if (says_first > 1) in.refuse();
  const auto first = in.get<std::uint32_t>();
  if (says_first == 1) claim.first_layer = first;
  claim.groups = in.get<std::uint32_t>();
  claim.block_bytes = in.get<std::uint64_t>();
  claim.padded_bytes = in.get<std::uint64_t>();
  return claim;
}

// --- messages, in the order of RankMessage ---
void put(ByteWriter& out, const RankChallenge& message) { out.put(message.nonce); }
void get(ByteReader& in, RankChallenge& message) { message.nonce = in.get<RankNonce>(); }

void put(ByteWriter& out, const RankHello& message) {
  put_claim(out, message.claim);
  out.put(message.nonce);
  out.put(message.proof);
}
void get(ByteReader& in, RankHello& message) {
  message.claim = get_claim(in);
  message.nonce = in.get<RankNonce>();
  message.proof = in.get<Digest>();
}

void put(ByteWriter& out, const RankWelcome& message) {
  out.put(message.leader);
  out.put(message.generation);
  put_duration(out, message.heartbeat);
  out.text(message.config);
  out.put(message.store);
  out.put(static_cast<std::uint8_t>(message.has_host_memory));
  out.put(message.proof);
}
void get(ByteReader& in, RankWelcome& message) {
  message.leader = in.get<LeaderId>();
  message.generation = in.get<std::uint32_t>();
  message.heartbeat = get_duration(in);
  message.config = in.text();
  message.store = in.get<RankStore>();
  const auto has_host_memory = in.get<std::uint8_t>();
  if (message.store > RankStore::kGuest || has_host_memory > 1) in.refuse();
  message.has_host_memory = has_host_memory == 1;
  message.proof = in.get<Digest>();
}

void put(ByteWriter& out, const RankReady& message) {
  out.put(message.block_bytes);
  out.put(static_cast<std::uint8_t>(message.is_reserved));
}
void get(ByteReader& in, RankReady& message) {
  message.block_bytes = in.get<std::uint64_t>();
  const auto is_reserved = in.get<std::uint8_t>();
  if (is_reserved > 1) in.refuse();
  message.is_reserved = is_reserved == 1;
}

void put(ByteWriter& out, const RankRefusal& message) { out.text(message.reason); }
void get(ByteReader& in, RankRefusal& message) { message.reason = in.text(); }

void put(ByteWriter& out, const RankTransfer& message) {
  CAIRN_CHECK(message.pairs.size() == message.tags.size(), "every pair of a transfer has a tag");
  out.put(message.id);
  out.put(message.from);
  out.put(message.to);
  out.put(message.not_before.value());
  put_duration(out, message.time_left);
  out.count(message.pairs.size());
  out.elements(message.pairs);
  out.elements(message.tags);
}
void get(ByteReader& in, RankTransfer& message) {
  message.id = in.get<TransferId>();
  message.from = get_level(in);
  message.to = get_level(in);
  message.not_before = StepMark::from_value(in.get<std::uint64_t>());
  message.time_left = get_duration(in);
  const std::size_t count = in.count(sizeof(BlockPair) + sizeof(BlockTag));
  message.pairs = in.elements<BlockPair>(count);
  message.tags = in.elements<BlockTag>(count);
}

void put(ByteWriter& out, const RankCancel& message) { out.put(message.id); }
void get(ByteReader& in, RankCancel& message) { message.id = in.get<TransferId>(); }

void put(ByteWriter& out, const RankTransferOutcome& message) {
  CAIRN_CHECK(message.states.size() == message.sums.size(), "every block of an outcome has sums");
  out.put(message.id);
  out.count(message.states.size());
  out.elements(message.sums);
  out.elements(message.states);
  out.text(message.error);
  put_duration(out, message.copied);
}
void get(ByteReader& in, RankTransferOutcome& message) {
  message.id = in.get<TransferId>();
  const std::size_t count = in.count(sizeof(BlockSums) + sizeof(BlockState));
  message.sums = in.elements<BlockSums>(count);
  message.states = in.elements<BlockState>(count);
  const auto is_one = [](BlockState state) { return state <= BlockState::kCancelled; };
  if (!std::all_of(message.states.begin(), message.states.end(), is_one)) in.refuse();
  message.error = in.text();
  message.copied = get_duration(in);
}

void put(ByteWriter& out, const RankSettled& message) { out.put(message.id); }
void get(ByteReader& in, RankSettled& message) { message.id = in.get<TransferId>(); }

void put(ByteWriter& out, const RankBroadcast& message) { out.list(message.bytes); }
void get(ByteReader& in, RankBroadcast& message) { message.bytes = in.list<std::byte>(); }

void put(ByteWriter& out, const RankPing& message) { out.put(message.number); }
void get(ByteReader& in, RankPing& message) { message.number = in.get<std::uint64_t>(); }

void put(ByteWriter& out, const RankPong& message) { out.put(message.number); }
void get(ByteReader& in, RankPong& message) { message.number = in.get<std::uint64_t>(); }

// Makes `message` a message of this kind and reads it. Returns false if the kind is unknown.
template <std::size_t... kPlaces>
bool get_kind(ByteReader& in, std::size_t place, RankMessage& message, std::index_sequence<kPlaces...> /*all*/) {
  return ((place == kPlaces && (get(in, message.emplace<kPlaces>()), true)) || ...);
}

Unexpected<Error> corrupt(std::string what) {
  return fail(ErrorCode::kCorrupt, std::move(what) + "; close the connection");
}

Result<RankMessage> decode_payload(std::uint16_t kind, std::span<const std::byte> payload) {
  ByteReader in(payload);
  RankMessage message;
  const std::size_t place = std::size_t{kind} - 1;  // kind 0 becomes an unknown one
  if (!get_kind(in, place, message, std::make_index_sequence<std::variant_size_v<RankMessage>>())) {
    return corrupt(str_cat("rank message of unknown kind ", kind));
  }
  if (!in.ended_well()) {
    return corrupt(str_cat("rank message of kind ", kind, ": its ", payload.size(), " bytes do not match its fields"));
  }
  return message;
}

}  // namespace

Result<LayerRange> RankClaim::layer_range(std::uint32_t whole_layers) const {
  if (ranks.pipeline == 1 && !first_layer) {
    return LayerRange{0, whole_layers};  // its device memory is compared with the model, which says more
  }
  const std::uint32_t stage = ranks.stage_of(rank);
  if (first_layer || stage == 0) {
    return LayerRange{first_layer.value_or(0), layers};
  }
  const LayerRange even = even_layers(stage, ranks.pipeline, whole_layers);
  if (even.count != layers) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("rank ", rank, " has ", layers, " layers and does not say which; pipeline stage ", stage,
                        " of ", ranks.pipeline, " would have ", even.count, " of ", whole_layers,
                        " if they were dealt evenly; give its first_layer"));
  }
  return even;
}

void put_claim(ByteWriter& out, const RankClaim& claim) {
  out.put(claim.rank);
  out.put(claim.ranks.tensor);
  out.put(claim.ranks.pipeline);
  out.put(claim.layers);
  out.put(static_cast<std::uint8_t>(claim.first_layer.has_value()));
  out.put(claim.first_layer.value_or(0));
  out.put(claim.groups);
  out.put(claim.block_bytes);
  out.put(claim.padded_bytes);
}

void encode(const RankMessage& message, std::uint32_t generation, std::vector<std::byte>& out) {
  const std::size_t begin = out.size();
  out.resize(begin + kFrameBytes);
  ByteWriter writer(out);
  std::visit([&](const auto& one) { put(writer, one); }, message);
  const std::span<const std::byte> payload = std::span(out).subspan(begin + kFrameBytes);
  CAIRN_CHECK(payload.size() <= kMaxPayload, "a message to or from a rank fits in a frame");
  const FrameHeader header{.magic = kMagic,
                           .version = kRankProtocol,
                           .kind = static_cast<std::uint16_t>(message.index() + 1),
                           .generation = generation,
                           .payload_bytes = static_cast<std::uint32_t>(payload.size())};
  const std::uint64_t hash = hash_frame(header, payload);
  std::memcpy(&out[begin], &header, sizeof(header));
  std::memcpy(&out[begin + sizeof(header)], &hash, sizeof(hash));
}

void RankDecoder::feed(std::span<const std::byte> bytes) {
  if (error_) return;
  // Bytes that are read are erased once they are the larger part: each byte is moved at most once.
  if (read_ > bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(read_));
    read_ = 0;
  }
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::size_t RankDecoder::room() const {
  const std::size_t frame = kFrameBytes + max_payload_;
  return buffered() < frame ? frame - buffered() : 0;
}

Result<std::optional<RankDecoder::Received>> RankDecoder::next() {
  if (error_) return Unexpected<Error>(*error_);
  Result<std::optional<Received>> received = cut();
  if (!received) {
    error_ = received.error();
    bytes_ = {};
    read_ = 0;
  }
  return received;
}

Result<std::optional<RankDecoder::Received>> RankDecoder::cut() {
  const std::span<const std::byte> unread = std::span(bytes_).subspan(read_);
  // The magic and the version come first in every version.
  ByteReader in(unread);
  const auto magic = in.get<std::uint32_t>();
  if (in.good() && magic != kMagic) return corrupt("the peer does not speak the rank protocol");
  const auto version = in.get<std::uint16_t>();
  if (in.good() && version != kRankProtocol) {
    return corrupt(str_cat("the peer speaks version ", version, " of the rank protocol, this program version ",
                           kRankProtocol, "; run the same release on both sides"));
  }
  if (unread.size() < kFrameBytes) return std::optional<Received>();

  const auto header = ByteReader(unread).get<FrameHeader>();
  if (header.payload_bytes > max_payload_) {
    return corrupt(str_cat("rank message of ", header.payload_bytes, " bytes; at most ", max_payload_, " are allowed",
                           max_payload_ < kMaxPayload ? " until the peer has proven that it knows the secret" : ""));
  }
  if (unread.size() - kFrameBytes < header.payload_bytes) return std::optional<Received>();
  const std::span<const std::byte> payload = unread.subspan(kFrameBytes, header.payload_bytes);
  if (ByteReader(unread.subspan(sizeof(FrameHeader))).get<std::uint64_t>() != hash_frame(header, payload)) {
    return corrupt("rank message with a wrong hash: it was damaged on the way");
  }
  CAIRN_TRY_ASSIGN(RankMessage message, decode_payload(header.kind, payload));
  read_ += kFrameBytes + header.payload_bytes;
  return std::optional<Received>(Received{header.generation, std::move(message)});
}

}  // namespace cairn
