#include "cairn/tier/disk_rank_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Reads a text from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool take(std::string_view wanted) {
    if (!text_.starts_with(wanted)) {
      return false;
    }
    text_.remove_prefix(wanted.size());
    return true;
  }
  // Only as Cairn writes numbers: no sign, no leading zeros.
  bool number(std::uint32_t& into) {
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), into);
    const auto length = static_cast<std::size_t>(end - text_.data());
    if (error != std::errc() || (length > 1 && text_.front() == '0')) {
      return false;
    }
    text_.remove_prefix(length);
    return true;
  }
  // "4-7"
  bool range(std::uint32_t& first, std::uint32_t& count) {
    std::uint32_t last = 0;
    if (!number(first) || !take("-") || !number(last) || last < first || last == 0xFFFF'FFFF) {
      return false;
    }
    count = last - first + 1;
    return true;
  }
  [[nodiscard]] bool is_at_end() const { return text_.empty(); }

 private:
  std::string_view text_;
};

// Of a leader's file: "contiguous-nhd 32x2x8x128", layers, K/V, heads and elements of a head; then the layer groups, if the
// model has any.
std::optional<KvShape> shape_of(const Namespace& space) {
  Scanner text(space.layout);
  KvShape shape{.page_size = space.block_size, .element_bits = 8};
  const bool is_one = text.take("contiguous-nhd ") && text.number(shape.layers) && text.take("x") &&
                      text.number(shape.kv) && text.take("x") && text.number(shape.heads) && text.take("x") &&
                      text.number(shape.head_size) && (text.is_at_end() || text.take(" ("));
  return is_one ? std::optional(shape) : std::nullopt;
}

bool overlap(std::uint32_t first, std::uint32_t count, std::uint32_t other, std::uint32_t others) {
  return std::uint64_t{first} < std::uint64_t{other} + others && std::uint64_t{other} < std::uint64_t{first} + count;
}

// Calls visit(offset in the block, offset in the part, bytes) for each contiguous run of rows of the part.
template <typename Visit>
void for_each_run(const KvShape& whole, const DiskPart& part, Visit visit) {
  if (part.heads == whole.heads) {  // whole layers are one run
    visit(whole.row(part.layers.first, 0, 0, 0) * whole.row_bytes(), std::uint64_t{0}, part.shape(whole).block_bytes());
    return;
  }
  const std::uint64_t bytes = part.heads * whole.row_bytes();
  std::uint64_t at = 0;
  for (std::uint32_t layer = part.layers.first; layer < part.layers.end(); ++layer) {
    for (std::uint32_t k_or_v = 0; k_or_v < whole.kv; ++k_or_v) {
      for (std::uint32_t token = 0; token < whole.page_size; ++token) {
        visit(whole.row(layer, k_or_v, token, part.first_head) * whole.row_bytes(), at, bytes);
        at += bytes;
      }
    }
  }
}

void check_sizes(const KvShape& whole, const DiskPart& part, std::size_t block, std::size_t bytes) {
  CAIRN_CHECK(part.layers.end() <= whole.layers && part.first_head + part.heads <= whole.heads &&
                  block == whole.block_bytes() && bytes == part.shape(whole).block_bytes(),
              "a part within the block, and buffers of their sizes");
}

}  // namespace

bool DiskPart::overlaps(const DiskPart& other) const {
  return overlap(layers.first, layers.count, other.layers.first, other.layers.count) &&
         overlap(first_head, heads, other.first_head, other.heads);
}

KvShape DiskPart::shape(const KvShape& whole) const {
  KvShape shape = whole;
  shape.layers = layers.count;
  shape.heads = heads;
  return shape;
}

std::string DiskPart::name() const {
  return str_cat("l", layers.first, "-", layers.end() - 1, ".h", first_head, "-", first_head + heads - 1);
}

Result<std::vector<DiskPart>> parts_of(const RankGrid& grid, const KvShape& whole,
                                       std::span<const std::uint32_t> stage_layers) {
  CAIRN_TRY(grid.validate());
  if (!stage_layers.empty() && stage_layers.size() != grid.pipeline) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the layers of ", stage_layers.size(), " stages for ",
                                                     grid.pipeline, " pipeline stages; give one number for each"));
  }
  std::vector<std::optional<LayerRange>> stages;
  for (std::uint32_t stage = 0; stage < grid.pipeline; ++stage) {
    const std::uint32_t first = stage == 0 ? 0 : stages.back()->end();
    stages.emplace_back(stage_layers.empty() ? even_layers(stage, grid.pipeline, whole.layers)
                                             : LayerRange{first, stage_layers[stage]});
  }
  CAIRN_TRY(check_stages(stages, whole.layers));
  std::vector<DiskPart> parts;
  for (std::uint32_t rank = 0; rank < grid.count(); ++rank) {
    CAIRN_TRY_ASSIGN(const RankShare share, RankShare::make(grid, rank, whole, stages[grid.stage_of(rank)]));
    if (share.heads.replica == 0) {
      parts.push_back({share.layers, share.heads.first_head, share.heads.heads});
    }
  }
  return parts;
}

Status check_cover(std::span<const DiskPart> parts, const KvShape& whole) {
  std::uint64_t cells = 0;  // a cell is one head of one layer
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const DiskPart& part = parts[i];
    if (part.layers.end() > whole.layers || part.first_head + part.heads > whole.heads) {
      return fail(ErrorCode::kFailedPrecondition, str_cat("part ", part.name(), " is not one of a model with ",
                                                          whole.layers, " layers and ", whole.heads, " heads"));
    }
    for (std::size_t other = 0; other < i; ++other) {
      if (part.overlaps(parts[other])) {
        return fail(ErrorCode::kFailedPrecondition,
                    str_cat("parts ", parts[other].name(), " and ", part.name(), " overlap"));
      }
    }
    cells += std::uint64_t{part.layers.count} * part.heads;
  }
  if (cells == std::uint64_t{whole.layers} * whole.heads) {
    return {};
  }
  for (std::uint32_t layer = 0; layer < whole.layers; ++layer) {
    for (std::uint32_t head = 0; head < whole.heads; ++head) {
      const DiskPart cell{{layer, 1}, head, 1};
      if (std::ranges::none_of(parts, [&](const DiskPart& part) { return part.overlaps(cell); })) {
        return fail(ErrorCode::kNotFound, str_cat("no file has layer ", layer, ", head ", head));
      }
    }
  }
  return {};
}

void take_part(const KvShape& whole, const DiskPart& part, std::span<const std::byte> block, std::span<std::byte> out) {
  check_sizes(whole, part, block.size(), out.size());
  for_each_run(whole, part, [&](std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    std::memcpy(out.data() + to, block.data() + from, bytes);
  });
}

void put_part(const KvShape& whole, const DiskPart& part, std::span<const std::byte> bytes,
              std::span<std::byte> block) {
  check_sizes(whole, part, block.size(), bytes.size());
  for_each_run(whole, part, [&](std::uint64_t to, std::uint64_t from, std::uint64_t run) {
    std::memcpy(block.data() + to, bytes.data() + from, run);
  });
}

std::optional<RankFileName> RankFileName::parse(std::string_view suffix) {
  RankFileName name{.suffix = std::string(suffix)};
  Scanner text(suffix);
  if (!text.take("l") || !text.range(name.part.layers.first, name.part.layers.count)) {
    return std::nullopt;
  }
  if (text.take(".h")) {
    const bool is_one = text.range(name.part.first_head, name.part.heads) &&
                        (!text.take(".c") || (text.number(name.copy) && name.copy != 0)) && text.is_at_end();
    return is_one ? std::optional(std::move(name)) : std::nullopt;
  }
  std::uint32_t group = 0;
  name.part.heads = 1;
  const bool is_one = text.take(".t") && text.number(name.part.first_head) && text.take("of") &&
                      text.number(name.tensor) && name.part.first_head < name.tensor && text.take(".g") &&
                      text.number(group) && text.is_at_end();
  return is_one ? std::optional(std::move(name)) : std::nullopt;
}

std::vector<RankFileName> find_rank_files(const std::string& path, std::string_view end) {
  const std::filesystem::path whole(path);
  const std::string start = whole.filename().string() + ".";
  std::vector<RankFileName> found;
  std::error_code none;
  const std::filesystem::path folder = whole.has_parent_path() ? whole.parent_path() : std::filesystem::path(".");
  for (std::filesystem::directory_iterator at(folder, none); at != std::filesystem::directory_iterator();
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (name.size() < start.size() + end.size() || !name.starts_with(start) || !name.ends_with(end)) {
      continue;
    }
    const std::string_view suffix =
        std::string_view(name).substr(start.size(), name.size() - start.size() - end.size());
    if (std::optional<RankFileName> parsed = RankFileName::parse(suffix); parsed) {
      found.push_back(*std::move(parsed));
    }
  }
  std::ranges::sort(found, {}, [](const RankFileName& name) {
    return std::tuple(name.part.layers.first, name.part.first_head, name.suffix);
  });
  return found;
}

bool is_rank_file(const DiskFile& file) {
  return file.geometry().has_blocks() && RankFileName::parse(file.geometry().space.shard);
}

std::string leader_of(const DiskFile& file) {
  const std::string end = str_cat(".", file.geometry().space.shard);
  return file.path().ends_with(end) ? file.path().substr(0, file.path().size() - end.size()) : "disk.path";
}

std::vector<std::string> files_of_another_grid(const std::string& path, std::string_view own) {
  const std::optional<RankFileName> mine = RankFileName::parse(own);
  CAIRN_CHECK(mine.has_value(), "a rank's file is named by its part");
  std::vector<std::string> others;
  for (const RankFileName& name : find_rank_files(path)) {
    const bool is_apart =
        !overlap(mine->part.layers.first, mine->part.layers.count, name.part.layers.first, name.part.layers.count);
    const bool is_alike = name.tensor == mine->tensor && name.part.layers == mine->part.layers;
    const bool fits = name.tensor != mine->tensor ? is_apart
                      : name.is_of_group()        ? is_apart || is_alike
                                                  : name.part == mine->part || !name.part.overlaps(mine->part);
    if (!fits) {
      others.push_back(str_cat(path, ".", name.suffix));
    }
  }
  return others;
}

Result<RankFiles> RankFiles::open(const std::string& path, disk::Access access) {
  CAIRN_TRY_ASSIGN(DiskFile leader, DiskFile::inspect(path));
  if (leader.geometry().has_blocks()) {
    return fail(ErrorCode::kFailedPrecondition,
                is_rank_file(leader)
                    ? str_cat(path, " holds the part of one rank; give the leader's file, ", leader_of(leader))
                    : str_cat(path, " holds its blocks itself: it is of a manager without ranks, and has no parts"));
  }
  if (access == disk::Access::kWrite) {
    const DiskGeometry geometry = leader.geometry();
    {
      const DiskFile closed = std::move(leader);
    }
    CAIRN_TRY_ASSIGN(leader, DiskFile::open(path, geometry));
  }
  RankFiles files(std::move(leader));
  const DiskGeometry& geometry = files.leader_.geometry();
  const std::optional<KvShape> shape = shape_of(geometry.space);
  if (!shape) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(path, " has blocks of layout '", geometry.space.layout, "', which this program does not know"));
  }
  files.space_ = geometry.space.id();
  files.whole_ = *shape;
  for (const RankFileName& name : find_rank_files(path)) {
    const std::string of_rank = str_cat(path, ".", name.suffix);
    if (name.is_of_group() || name.copy != 0) {
      return fail(ErrorCode::kFailedPrecondition,
                  str_cat(of_rank,
                          name.is_of_group() ? " is of one of several groups of layers, whose shapes it does not say"
                                             : " is a replica's own copy, which the checksums of blocks depend on",
                          "; such a tier is read by ranks only. To start anew, set disk.opening = \"fresh\""));
    }
    CAIRN_TRY_ASSIGN(DiskFile file, DiskFile::inspect(of_rank));
    const DiskGeometry& has = file.geometry();
    DiskGeometry wanted = has;
    wanted.space = geometry.space;
    wanted.space.weights_generation = 0;
    wanted.space.shard = name.suffix;
    if (has.space.id() != wanted.space.id() || has.blocks != geometry.blocks) {
      return fail(ErrorCode::kFailedPrecondition,
                  str_cat(of_rank, " is not a rank's file of ", path, ": it has another model, layout or number of ",
                          "blocks; move one of the two elsewhere"));
    }
    if (files.files_.empty()) {
      files.whole_.head_size = static_cast<std::uint32_t>(has.row_bytes);
      CAIRN_TRY(files.whole_.validate());
    }
    if (has.row_bytes != files.whole_.row_bytes() || has.block_bytes != name.part.shape(files.whole_).block_bytes()) {
      return fail(ErrorCode::kFailedPrecondition,
                  str_cat(of_rank, " has blocks of ", has.block_bytes, " bytes in rows of ", has.row_bytes,
                          ", which is not the part of the model that its name says; remove it if it is not needed"));
    }
    files.parts_.push_back(name.part);
    files.files_.push_back(std::move(file));
  }
  if (const Status covers = check_cover(files.parts_, files.whole_); !covers) {
    return fail(
        covers.error().code,
        str_cat("the files of the ranks of ", path, " are not those of one grid: ", covers.error().message,
                covers.error().code == ErrorCode::kNotFound
                    ? "; bring the files of all ranks to one machine, or start anew with disk.opening = \"fresh\""
                    : "; keep the files of one grid and move the others away"));
  }
  return files;
}

Status RankFiles::read(BlockId block_id, std::span<std::byte> block) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    bytes_.resize(files_[i].geometry().block_bytes);
    CAIRN_TRY(files_[i].read_blocks(block_id, bytes_));
    put_part(whole_, parts_[i], bytes_, block);
  }
  return {};
}

bool RankFiles::is_right(const DiskEntry& entry, std::span<const std::byte> block) const {
  const DiskGeometry geometry{.space = {}, .block_bytes = whole_.block_bytes(), .row_bytes = whole_.row_bytes()};
  return checksum_of(geometry, space_, entry.key, block) == entry.checksum;
}

Result<DiskCheck> check_blocks(RankFiles& files, std::span<const DiskEntry> entries, const DiskProgress& progress) {
  DiskCheck check;
  std::vector<std::byte> block(files.whole().block_bytes());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    (!files.read(entries[i].block_id, block) ? check.unreadable
     : files.is_right(entries[i], block)     ? check.right
                                             : check.wrong)
        .push_back(entries[i]);
    if (progress && !progress(i + 1, entries.size())) {
      return fail(ErrorCode::kCancelled, str_cat("stopped after ", i + 1, " of ", entries.size(), " blocks"));
    }
  }
  return check;
}

}  // namespace cairn
