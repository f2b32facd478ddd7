#include "cairn/memory/preallocate.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cairn/memory/memory_testing.h"

namespace cairn::testing {
namespace {

class PreallocateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = open(folder_.in("file").c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_GE(file_, 0);
  }
  void TearDown() override { close(file_); }
  std::uint64_t size() {
    struct stat facts{};
    EXPECT_EQ(fstat(file_, &facts), 0);
    return static_cast<std::uint64_t>(facts.st_size);
  }

  TestFolder folder_;
  int file_ = -1;
};

template <int kError>
int refuse(int /*file*/, int /*mode*/, off_t /*offset*/, off_t /*length*/) {
  errno = kError;
  return -1;
}

TEST_F(PreallocateTest, TheFileHasItsSpace) {
  const Preallocated done = preallocate(file_, 1 << 20);
  EXPECT_EQ(done.error, 0);
  EXPECT_EQ(size(), 1U << 20);
}

TEST_F(PreallocateTest, AFileSystemThatCannotReserveGivesTheSizeOnly) {
  for (const Fallocate refused : {&refuse<EOPNOTSUPP>, &refuse<EINVAL>, &refuse<ENOSYS>}) {
    ASSERT_EQ(ftruncate(file_, 0), 0);
    const Preallocated done = preallocate(file_, 1 << 20, refused);
    EXPECT_EQ(done.error, 0);
    EXPECT_FALSE(done.is_reserved);
    EXPECT_EQ(size(), 1U << 20);
    struct stat facts{};
    ASSERT_EQ(fstat(file_, &facts), 0);
    EXPECT_LT(facts.st_blocks * 512, 1 << 20) << "nothing is written";
  }
}

TEST_F(PreallocateTest, ALongerFileKeepsItsLength) {
  ASSERT_EQ(ftruncate(file_, 1 << 21), 0);
  EXPECT_EQ(preallocate(file_, 1 << 20, &refuse<EOPNOTSUPP>).error, 0);
  EXPECT_EQ(size(), 1U << 21);
}

TEST_F(PreallocateTest, AFullDiskIsAnError) {
  const Preallocated done = preallocate(file_, 1 << 20, &refuse<ENOSPC>);
  EXPECT_EQ(done.error, ENOSPC);
  EXPECT_EQ(size(), 0U);
}

TEST_F(PreallocateTest, AnInterruptedCallIsRepeated) {
  static int calls = 0;
  const Preallocated done = preallocate(file_, 1 << 20, [](int file, int mode, off_t offset, off_t length) {
    if (++calls == 1) {
      errno = EINTR;
      return -1;
    }
    return ::fallocate(file, mode, offset, length);
  });
  EXPECT_EQ(done.error, 0);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace cairn::testing
