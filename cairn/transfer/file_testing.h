// Files for the tests of this folder: made in the temporary directory, and removed with the object.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/layout/block_layout.h"
#include "cairn/memory/region.h"

namespace cairn::testing {

class TestFile {
 public:
  explicit TestFile(std::uint64_t bytes) : path_(::testing::TempDir() + "cairn_file_XXXXXX") {
    descriptor_ = mkstemp(path_.data());
    EXPECT_GE(descriptor_, 0) << path_;
    EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(bytes)), 0) << path_;
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  ~TestFile() {
    close(descriptor_);
    unlink(path_.c_str());
  }

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] std::vector<std::byte> read(std::uint64_t offset, std::uint64_t bytes) const {
    std::vector<std::byte> out(bytes);
    const ssize_t got = pread(descriptor_, out.data(), bytes, static_cast<off_t>(offset));
    out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return out;
  }
  void write(std::uint64_t offset, const std::vector<std::byte>& bytes) const {
    EXPECT_EQ(pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

// A region of the file, through its own descriptor. Buffered if the file system has no direct I/O.
enum class FileMode { kDirect, kBuffered, kReadOnly };

[[nodiscard]] inline RegionPtr region_of(const TestFile& file, std::uint64_t bytes, FileMode mode) {
  const int access = mode == FileMode::kReadOnly ? O_RDONLY : O_RDWR;
  int descriptor = -1;
  if (mode == FileMode::kDirect) {
    descriptor = open(file.path().c_str(), access | O_CLOEXEC | O_DIRECT);
  }
  const bool direct = descriptor >= 0;
  if (!direct) {
    descriptor = open(file.path().c_str(), access | O_CLOEXEC);
  }
  EXPECT_GE(descriptor, 0) << file.path();
  return std::make_shared<const Region>(
      RegionFacts{.kind = MemoryKind::kFile, .size = bytes, .alignment = 4096, .file = descriptor, .direct = direct},
      [descriptor] { close(descriptor); });
}

// A layout whose regions are files, filled with guard bytes beyond the last block as well.
class FileLayout {
 public:
  static constexpr std::byte kGuard{0xC5};
  static constexpr std::uint64_t kBeyond = 8192;

  FileLayout(const BlockLayout::Options& options, FileMode mode) {
    const Result<std::vector<std::uint64_t>> sizes = BlockLayout::region_sizes(options);
    EXPECT_TRUE(sizes) << sizes.error().to_string();
    std::vector<RegionPtr> regions;
    for (const std::uint64_t size : *sizes) {
      files_.push_back(std::make_unique<TestFile>(size + kBeyond));
      files_.back()->write(0, std::vector<std::byte>(size + kBeyond, kGuard));
      regions.push_back(region_of(*files_.back(), size, mode));
    }
    Result<BlockLayoutPtr> made = BlockLayout::make(options, std::move(regions));
    EXPECT_TRUE(made) << made.error().to_string();
    layout_ = *made;
  }

  [[nodiscard]] const BlockLayoutPtr& layout() const { return layout_; }
  [[nodiscard]] const TestFile& file(std::size_t region) const { return *files_[region]; }
  [[nodiscard]] std::size_t files() const { return files_.size(); }
  [[nodiscard]] std::vector<std::byte> bytes(std::size_t region) const {
    return files_[region]->read(0, layout_->regions()[region]->size() + kBeyond);
  }

 private:
  std::vector<std::unique_ptr<TestFile>> files_;
  BlockLayoutPtr layout_;
};

[[nodiscard]] inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(count);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, count - i));
  }
  return out;
}

}  // namespace cairn::testing
