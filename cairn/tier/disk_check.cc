#include "cairn/tier/disk_check.h"

#include <algorithm>
#include <numeric>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/tier/tier.h"

namespace cairn {

namespace {

constexpr std::uint64_t kReadBytes = std::uint64_t{16} << 20;

enum class Verdict : std::uint8_t { kRight, kWrong, kUnreadable };

// Reads and judges the blocks of one file.
class Checker {
 public:
  Checker(const DiskFile& file, std::span<const DiskEntry> entries)
      : file_(file), entries_(entries), space_(file.geometry().space.id()), verdicts_(entries.size()) {}

  // In the order of the file: adjacent blocks are one read, up to a limit.
  [[nodiscard]] Status run(const DiskProgress& progress) {
    std::vector<std::size_t> by_block_id(entries_.size());
    std::iota(by_block_id.begin(), by_block_id.end(), std::size_t{0});
    std::sort(by_block_id.begin(), by_block_id.end(),
              [this](std::size_t a, std::size_t b) { return entries_[a].block_id < entries_[b].block_id; });
    const std::uint64_t most = std::max<std::uint64_t>(1, kReadBytes / file_.block_step());
    bytes_.resize(std::min<std::uint64_t>(most, entries_.size()) * file_.block_step());
    for (std::size_t first = 0; first < by_block_id.size();) {
      std::size_t count = 1;
      while (count < most && first + count < by_block_id.size() &&
             index_of(block_id(by_block_id[first + count])) == index_of(block_id(by_block_id[first])) + count) {
        ++count;
      }
      judge(std::span(by_block_id).subspan(first, count));
      first += count;
      if (progress && !progress(first, by_block_id.size())) {
        return fail(ErrorCode::kCancelled, str_cat("stopped after ", first, " of ", by_block_id.size(), " blocks"));
      }
    }
    return {};
  }
  [[nodiscard]] DiskCheck sorted() const {
    DiskCheck check;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      (verdicts_[i] == Verdict::kRight   ? check.right
       : verdicts_[i] == Verdict::kWrong ? check.wrong
                                         : check.unreadable)
          .push_back(entries_[i]);
    }
    return check;
  }

 private:
  [[nodiscard]] BlockId block_id(std::size_t entry) const { return entries_[entry].block_id; }

  void judge(std::span<const std::size_t> run) {
    const std::uint64_t step = file_.block_step();
    const bool is_read =
        file_.read_blocks(block_id(run.front()), std::span(bytes_).first(run.size() * step)).has_value();
    if (!is_read && run.size() > 1) {
      // One of them: which one?
      for (std::size_t i = 0; i < run.size(); ++i) {
        judge(run.subspan(i, 1));
      }
      return;
    }
    for (std::size_t i = 0; i < run.size(); ++i) {
      const DiskEntry& entry = entries_[run[i]];
      const std::span<const std::byte> block = std::span(bytes_).subspan(i * step, file_.geometry().block_bytes);
      verdicts_[run[i]] = !is_read ? Verdict::kUnreadable
                          : checksum_of(file_.geometry(), space_, entry.key, block) == entry.checksum ? Verdict::kRight
                                                                                                      : Verdict::kWrong;
    }
  }

  const DiskFile& file_;
  const std::span<const DiskEntry> entries_;
  const NamespaceId space_;
  std::vector<Verdict> verdicts_;
  std::vector<std::byte> bytes_;
};

}  // namespace

Checksum checksum_of(const DiskGeometry& geometry, NamespaceId space, const BlockKey& key,
                     std::span<const std::byte> block) {
  CAIRN_CHECK(block.size() == geometry.block_bytes, "the bytes of one block");
  constexpr std::uint64_t kWord = 8;
  // Rows of whole words need no padding: the block is one row to the sums.
  const std::uint64_t row_bytes = geometry.row_bytes % kWord == 0 ? block.size() : geometry.row_bytes;
  const std::uint64_t row_words = (row_bytes + kWord - 1) / kWord;
  BlockSums sums;
  for (std::uint64_t row = 0; row * row_bytes < block.size(); ++row) {
    sums += sum_words(block.subspan(row * row_bytes, row_bytes), row * row_words);
  }
  return finish(sums, block.size(), block_tag(space, key));
}

Result<DiskCheck> check_blocks(const DiskFile& file, std::span<const DiskEntry> entries, const DiskProgress& progress) {
  if (!file.geometry().has_blocks()) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(file.path(), " has entries only: its blocks are in the files of the ranks beside it"));
  }
  Checker checker(file, entries);
  CAIRN_TRY(checker.run(progress));
  return checker.sorted();
}

}  // namespace cairn
