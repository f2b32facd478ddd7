#include "cairn/tier/disk_format.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cairn/base/str_cat.h"

namespace cairn::disk {

namespace {

constexpr char kMagic[] = "CAIRNDSK";
constexpr char kEntryMagic[] = "CENT";
constexpr std::size_t kSeal = sizeof(std::uint64_t);

// Writes fields one after the other; counts what does not fit, so that the caller asks once.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}

  template <typename Number>
  void number(Number value) {
    std::array<std::byte, sizeof(Number)> bytes;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      bytes[i] = static_cast<std::byte>(value >> (8 * i));
    }
    raw(bytes);
  }
  void text(const std::string& text) {
    number(static_cast<std::uint16_t>(std::min<std::size_t>(text.size(), 0xFFFF)));
    raw(std::as_bytes(std::span(text)));
  }
  void raw(std::span<const std::byte> bytes) {
    if (at_ + bytes.size() <= out_.size()) {
      std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<std::ptrdiff_t>(at_));
    }
    at_ += bytes.size();
  }
  [[nodiscard]] bool fits() const { return at_ <= out_.size(); }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <typename Number>
  Number number() {
    Number value = 0;
    if (in_.size() < sizeof(Number)) {
      in_ = {};
      good_ = false;
      return 0;
    }
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      value = static_cast<Number>(value | (static_cast<Number>(in_[i]) << (8 * i)));
    }
    in_ = in_.subspan(sizeof(Number));
    return value;
  }
  std::string text() {
    const auto size = number<std::uint16_t>();
    if (in_.size() < size) {
      good_ = false;
      return {};
    }
    std::string text(reinterpret_cast<const char*>(in_.data()), size);
    in_ = in_.subspan(size);
    return text;
  }
  [[nodiscard]] bool take(std::string_view wanted) {
    if (in_.size() < wanted.size() || std::memcmp(in_.data(), wanted.data(), wanted.size()) != 0) {
      return false;
    }
    in_ = in_.subspan(wanted.size());
    return true;
  }
  [[nodiscard]] std::span<const std::byte> raw(std::size_t size) {
    const std::span<const std::byte> bytes = in_.first(size);
    in_ = in_.subspan(size);
    return bytes;
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  std::span<const std::byte> in_;
  bool good_ = true;
};

// The checksum of the bytes before it.
std::uint64_t seal_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint64_t>(finish(sum_words(bytes, 0), bytes.size(), {}));
}

bool is_sealed(std::span<const std::byte> bytes) {
  const std::span<const std::byte> content = bytes.first(bytes.size() - kSeal);
  return Reader(bytes.last(kSeal)).number<std::uint64_t>() == seal_of(content);
}

void seal(std::span<std::byte> bytes) { Writer(bytes.last(kSeal)).number(seal_of(bytes.first(bytes.size() - kSeal))); }

}  // namespace

Result<SuperblockBytes> encode(const Superblock& superblock) {
  SuperblockBytes bytes{};
  const DiskGeometry& geometry = superblock.geometry;
  const Namespace& space = geometry.space;
  const std::optional<DiskPlaces> places = geometry.places();
  if (!places) {
    return fail(ErrorCode::kInvalidArgument, "a file cannot have the bytes of so many blocks");
  }
  Writer out{std::span<std::byte>(bytes).first(kSuperblockBytes - kSeal)};
  out.raw(std::as_bytes(std::span(kMagic, sizeof(kMagic) - 1)));
  out.number(DiskFile::kFormat);
  out.number(static_cast<std::uint32_t>(superblock.clean));
  out.number(geometry.blocks);
  out.number(space.block_size);
  out.number(static_cast<std::uint32_t>(space.scheme));
  out.number(static_cast<std::uint32_t>(geometry.row_bytes));
  out.number(geometry.block_bytes);
  out.number(places->data_offset);
  out.number(places->block_step);
  out.number(value_of(space.id()));
  out.number(space.weights_generation);
  out.number(static_cast<std::uint32_t>(geometry.secret.has_value()));
  out.raw(geometry.secret ? geometry.secret->bytes() : KeySecret(KeySecret::Bytes{}).bytes());
  out.number(superblock.fence);
  for (const std::string* const text :
       {&space.tenant, &space.model, &space.layout, &space.element_type, &space.shard}) {
    out.text(*text);
  }
  if (!out.fits()) {
    return fail(ErrorCode::kInvalidArgument,
                "the names of tenant, model, layout, type and shard take more than a superblock has; shorten them");
  }
  seal(bytes);
  return bytes;
}

Result<Superblock> decode_superblock(std::span<const std::byte, kSuperblockBytes> bytes) {
  Reader in(bytes);
  if (!in.take(kMagic)) {
    return fail(ErrorCode::kCorrupt, "it does not begin as a disk tier of Cairn does");
  }
  if (const auto format = in.number<std::uint32_t>(); format != DiskFile::kFormat) {
    return fail(ErrorCode::kCorrupt, str_cat("it has format ", format, ", and this program reads format ",
                                             DiskFile::kFormat, "; use the program that wrote it, or another file"));
  }
  if (!is_sealed(bytes)) {
    return fail(ErrorCode::kCorrupt, "its superblock is damaged");
  }
  Superblock superblock;
  superblock.clean = in.number<std::uint32_t>() != 0;
  DiskGeometry& geometry = superblock.geometry;
  Namespace& space = geometry.space;
  geometry.blocks = in.number<std::uint32_t>();
  space.block_size = in.number<std::uint32_t>();
  space.scheme = static_cast<KeyScheme>(in.number<std::uint32_t>());
  geometry.row_bytes = in.number<std::uint32_t>();
  geometry.block_bytes = in.number<std::uint64_t>();
  const auto data_offset = in.number<std::uint64_t>();
  const auto block_step = in.number<std::uint64_t>();
  const auto id = in.number<std::uint64_t>();
  space.weights_generation = in.number<std::uint64_t>();
  const auto secrets = in.number<std::uint32_t>();
  geometry.keeps_secret = secrets == 1;
  KeySecret::Bytes secret;
  std::ranges::copy(in.raw(secret.size()), secret.begin());
  const bool secret_is_good = secrets <= 1 && (geometry.keeps_secret || secret == KeySecret::Bytes{});
  if (geometry.keeps_secret) {
    geometry.secret.emplace(secret);
  }
  superblock.fence = in.number<std::uint64_t>();
  for (std::string* const text : {&space.tenant, &space.model, &space.layout, &space.element_type, &space.shard}) {
    *text = in.text();
  }
  if (!in.good() || !secret_is_good || value_of(space.id()) != id || !geometry.validate()) {
    return fail(ErrorCode::kCorrupt, "its superblock contradicts itself");
  }
  const std::optional<DiskPlaces> places = geometry.places();
  if (!places || places->data_offset != data_offset || places->block_step != block_step) {
    return fail(ErrorCode::kCorrupt, "it has its blocks where this program does not look for them");
  }
  // There must be nothing else, neither after the names nor in a flag.
  if (const Result<SuperblockBytes> again = encode(superblock); !again || !std::ranges::equal(*again, bytes)) {
    return fail(ErrorCode::kCorrupt, "its superblock has bytes that mean nothing");
  }
  return superblock;
}

bool begins_as_superblock(std::span<const std::byte> bytes) { return Reader(bytes).take(kMagic); }

bool is_entry(std::span<const std::byte, kEntryBytes> bytes) {
  return Reader(bytes).take(kEntryMagic) && is_sealed(bytes);
}

EntryBytes encode(const DiskEntry& entry, NamespaceId space) {
  EntryBytes bytes{};
  Writer out(bytes);
  out.raw(std::as_bytes(std::span(kEntryMagic, sizeof(kEntryMagic) - 1)));
  out.number(index_of(entry.block_id));
  out.raw(entry.key.to_bytes());
  out.number(static_cast<std::uint64_t>(entry.checksum));
  out.number(entry.order);
  out.number(value_of(space));
  out.number(value_of(entry.tokens_hash));
  seal(bytes);
  return bytes;
}

Result<std::optional<DiskEntry>> decode_entry(std::span<const std::byte, kEntryBytes> bytes, const EntryPlace& place) {
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; })) {
    return std::optional<DiskEntry>();
  }
  Reader in(bytes);
  if (!in.take(kEntryMagic) || !is_sealed(bytes)) {
    return fail(ErrorCode::kCorrupt, "a damaged entry");
  }
  DiskEntry entry;
  entry.block_id = BlockId{in.number<std::uint32_t>()};
  const Result<BlockKey> key = BlockKey::from_bytes(in.raw(16));
  entry.checksum = Checksum{in.number<std::uint64_t>()};
  if (entry.checksum == kNoChecksum) {
    return fail(ErrorCode::kCorrupt, "an entry without a checksum");
  }
  entry.order = in.number<std::uint64_t>();
  if (entry.block_id == place.block_id && entry.order < place.fence) {
    return std::optional<DiskEntry>();  // of any namespace: a fence may begin another one
  }
  if (entry.block_id != place.block_id || !key || in.number<std::uint64_t>() != value_of(place.space)) {
    return fail(ErrorCode::kCorrupt, "an entry that belongs elsewhere");
  }
  entry.tokens_hash = BlockHash{in.number<std::uint64_t>()};
  entry.key = *key;
  return std::optional<DiskEntry>(entry);
}

}  // namespace cairn::disk
