// However the file of a disk tier is damaged, the process starts and serves no wrong block: damaged blocks are not
// found, and a file that cannot be read at all is replaced by an empty one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/tier/disk_check.h"
#include "cairn/tier/disk_file.h"
#include "cairn/tier/disk_format.h"
#include "tests/crash/crash_testing.h"
#include "tests/crash/stress_process_testing.h"

namespace cairn::crash {
namespace {

// The bytes of a disk tier's file, to be damaged.
class Damaged {
 public:
  Damaged(const std::string& path, std::uint64_t seed) : random_(seed) {
    DiskFile file = *DiskFile::inspect(path);
    data_offset_ = file.data_offset();
    step_ = file.block_step();
    const Result<DiskRecovery> recovery = file.recover();
    for (const DiskEntry& entry : recovery->entries) {
      used_.push_back(index_of(entry.block_id));
    }
    std::ifstream in(path, std::ios::binary);
    bytes_.resize(std::filesystem::file_size(path));
    in.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  }
  // Damages the bytes; returns a description.
  std::string damage() {
    using Way = std::string (Damaged::*)();
    constexpr Way kWays[] = {&Damaged::flip_bits, &Damaged::zero, &Damaged::noise,     &Damaged::tear,
                             &Damaged::swap,      &Damaged::copy, &Damaged::duplicate, &Damaged::resize};
    return (this->*kWays[below(std::size(kWays))])();
  }
  void write_to(const std::string& path) const {
    std::ofstream(path, std::ios::binary) << bytes_;
    // Without this the file would be rejected because others may read its secret, not because of the damage.
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }

 private:
  enum class Part { kSuperblocks, kEntries, kBlocks };
  struct Area {
    std::uint64_t offset;
    std::uint64_t size;
  };
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::uint32_t some_block_id() { return used_[below(used_.size())]; }
  // A superblock, or an entry or block that is in use.
  Area some_area(Part part) {
    switch (part) {
      case Part::kSuperblocks:
        return {below(2) * disk::kSuperblockBytes, disk::kSuperblockBytes};
      case Part::kEntries:
        return {disk::kEntriesOffset + some_block_id() * disk::kEntryBytes, disk::kEntryBytes};
      case Part::kBlocks:
        break;
    }
    return {data_offset_ + some_block_id() * step_, step_};
  }
  Part some_part() { return below(5) == 0 ? Part::kSuperblocks : below(2) == 0 ? Part::kEntries : Part::kBlocks; }
  static std::string text(const Area& area) { return str_cat(area.size, " bytes at ", area.offset); }

  std::string flip_bits() {
    std::string what = "flipped bits at";
    for (std::uint64_t i = 0, count = 1 + below(20); i < count; ++i) {
      const Area area = some_area(some_part());
      const std::uint64_t at = area.offset + below(area.size);
      bytes_[at] = static_cast<char>(bytes_[at] ^ (1 << below(8)));
      what += str_cat(" ", at);
    }
    return what;
  }
  // A part of an area, as if a sector was lost.
  Area some_range() {
    const Area area = some_area(some_part());
    const std::uint64_t begin = below(area.size);
    return {area.offset + begin, 1 + below(area.size - begin)};
  }
  std::string zero() {
    const Area range = some_range();
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(range.offset), range.size, '\0');
    return "zeroed " + text(range);
  }
  std::string noise() {
    const Area range = some_range();
    std::generate_n(bytes_.begin() + static_cast<std::ptrdiff_t>(range.offset), range.size,
                    [this] { return static_cast<char>(random_()); });
    return "noise in " + text(range);
  }
  // The first sectors of one block followed by the last ones of another: a write that stopped halfway.
  std::string tear() {
    const Area one = some_area(Part::kBlocks);
    const Area other = some_area(Part::kBlocks);
    const std::uint64_t size = 512 * (1 + below(step_ / 512 - 1));
    std::memcpy(&bytes_[one.offset], &bytes_[other.offset], size);
    return str_cat("tore ", text(one), ": ", size, " bytes of ", other.offset);
  }
  std::string swap() {
    const Part part = some_part();
    const Area one = some_area(part);
    const Area other = some_area(part);
    std::swap_ranges(&bytes_[one.offset], &bytes_[one.offset] + one.size, &bytes_[other.offset]);
    return str_cat("swapped ", text(one), " and ", other.offset);
  }
  std::string copy() {
    const Part part = some_part();
    const Area one = some_area(part);
    const Area other = some_area(part);
    std::memmove(&bytes_[one.offset], &bytes_[other.offset], one.size);
    return str_cat("copied ", text(other), " to ", one.offset);
  }
  // A run of bytes from anywhere, over anything.
  std::string duplicate() {
    const std::uint64_t size = 1 + below(bytes_.size() / 4);
    const std::uint64_t from = below(bytes_.size() - size);
    const std::uint64_t to = below(bytes_.size() - size);
    std::memmove(&bytes_[to], &bytes_[from], size);
    return str_cat("duplicated ", size, " bytes at ", from, " to ", to);
  }
  std::string resize() {
    bytes_.resize(below(3) == 0 ? bytes_.size() + below(100'000) : below(bytes_.size()));
    return str_cat("resized to ", bytes_.size());
  }

  std::mt19937_64 random_;
  std::uint64_t data_offset_ = 0;
  std::uint64_t step_ = 0;
  std::vector<std::uint32_t> used_;
  std::string bytes_;
};

// The number of blocks whose checksums are right; 0 if both superblocks are damaged. For a truncated file, of those
// that are left.
std::uint64_t right_blocks(const std::string& path, std::uint64_t whole_bytes) {
  const std::string copy = path + ".copy";
  std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::resize_file(copy, whole_bytes);
  Result<DiskFile> file = DiskFile::inspect(copy);
  return file ? check_blocks(*file, file->recover()->entries)->right.size() : 0;
}

TEST(DamageTest, NoWrongBlockIsServedFromADamagedFile) {
  const TestFolder folder;
  const std::string log = folder.in("log");
  const std::string original = folder.in("original");
  const StressRun filling{.path = original, .seconds = 0.5, .write_through = true, .steady = true};
  StressRun whole = filling;
  whole.seconds = 0;
  Resumed untouched;
  for (int runs = 0; runs < 50 && untouched.verified < kDiskBlocks / 2; ++runs) {
    Process process(command_of(filling), log);
    ASSERT_EQ(process.wait(), 0) << process.log();
    untouched = resume(whole, log);
    ASSERT_TRUE(untouched.exited_with(0)) << untouched.to_string();
    ASSERT_EQ(untouched.refused, 0U);
  }
  ASSERT_GE(untouched.verified, kDiskBlocks / 2);

  const std::uint64_t whole_bytes = std::filesystem::file_size(original);
  std::uint32_t started_empty = 0;
  std::uint64_t refused_blocks = 0;
  for (std::uint32_t i = 0; i < crash_settings.damages; ++i) {
    const std::string path = folder.in("damaged");
    Damaged file(original, crash_settings.seed * 1000 + i);
    std::string what = str_cat("seed ", crash_settings.seed, ", damage ", i, ": ", file.damage());
    for (std::uint32_t more = i % 3; more > 0; --more) {
      what += ", " + file.damage();
    }
    file.write_to(path);
    const std::uint64_t right = right_blocks(path, whole_bytes);
    // Run some traffic afterwards: damaged blocks must not come back later either.
    const Resumed resumed = resume({.path = path,
                                    .seconds = 0.05,
                                    .seed = filling.seed,
                                    .write_through = i % 2 == 0,
                                    .direct = i / 2 % 2 == 0,
                                    .steady = true},
                                   log);
    EXPECT_EQ(resumed.wrong, "") << what;
    EXPECT_TRUE(resumed.exited_with(0)) << what << "\n" << resumed.to_string();
    EXPECT_EQ(resumed.verified, right) << what << "\n" << resumed.to_string();
    refused_blocks += resumed.refused;
    started_empty += resumed.report.find("the tier starts empty") != std::string::npos ? 1 : 0;
    // The file that it leaves has no damage.
    const Resumed again = resume({.path = path, .write_through = true, .steady = true}, log);
    EXPECT_TRUE(again.exited_with(0)) << what << "\n" << again.to_string();
    EXPECT_EQ(again.refused, 0U) << what << "\n" << again.to_string();
    if (HasFailure()) {
      break;
    }
  }
  std::printf("%u damaged files: %u replaced by empty ones, %llu blocks refused in the others\n",
              crash_settings.damages, started_empty, static_cast<unsigned long long>(refused_blocks));
  EXPECT_GT(started_empty, 0U);
  EXPECT_LT(started_empty, crash_settings.damages);
  EXPECT_GT(refused_blocks, 0U);
}

}  // namespace
}  // namespace cairn::crash
