// Files for the tests of this folder: made in the temporary directory, and gone with the object.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace cairn {

class TestFile {
 public:
  explicit TestFile(std::uint64_t bytes) : path_(testing::TempDir() + "cairn_file_XXXXXX") {
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

[[nodiscard]] inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(count);
  for (std::byte& byte : out) {
    byte = static_cast<std::byte>(random());
  }
  return out;
}

}  // namespace cairn
