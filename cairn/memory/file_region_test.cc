#include "cairn/memory/file_region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string text_of(const Result<RegionPtr>& result) {
  return result ? str_cat("made: ", (*result)->notes()) : result.error().to_string();
}

struct stat facts_of(const std::string& path) {
  struct stat facts{};
  EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
  return facts;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

TEST(FileRegionTest, IsCreatedAndSetAside) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  RegionPtr region = file_region({.path = path, .size = 4 * kMiB}).value();
  EXPECT_EQ(region->kind(), MemoryKind::kFile);
  EXPECT_EQ(region->base(), nullptr);
  EXPECT_EQ(region->size(), 4 * kMiB);
  EXPECT_GE(region->file(), 0);
  EXPECT_FALSE(region->is_host());
  EXPECT_FALSE(region->is_external());
  const struct stat facts = facts_of(path);
  EXPECT_EQ(facts.st_size, static_cast<off_t>(4 * kMiB));
  EXPECT_GE(static_cast<std::uint64_t>(facts.st_blocks) * 512, 4 * kMiB);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  EXPECT_NE(fcntl(region->file(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(fcntl(region->file(), F_GETFL) & O_NONBLOCK, 0);
  const int descriptor = region->file();
  region.reset();
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);
  EXPECT_TRUE(exists(path));
}

TEST(FileRegionTest, DirectReadsAndWritesKeepToTheAlignmentItNames) {
  const TestFolder folder;
  const RegionPtr region = file_region({.path = folder.in("blocks"), .size = 4 * kMiB}).value();
  if (!region->is_direct()) {
    GTEST_SKIP() << region->notes();
  }
  EXPECT_THAT(region->notes(), IsEmpty());
  EXPECT_NE(fcntl(region->file(), F_GETFL) & O_DIRECT, 0);
  const std::uint64_t alignment = region->alignment();
  ASSERT_GE(alignment, 512U);
  std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(alignment, 2 * alignment), std::free);
  auto* const bytes = static_cast<unsigned char*>(memory.get());
  std::fill_n(bytes, alignment, 0x5a);
  std::fill_n(bytes + alignment, alignment, 0);
  const auto offset = static_cast<off_t>(3 * alignment);
  ASSERT_EQ(pwrite(region->file(), bytes, alignment, offset), static_cast<ssize_t>(alignment));
  ASSERT_EQ(pread(region->file(), bytes + alignment, alignment, offset), static_cast<ssize_t>(alignment));
  EXPECT_TRUE(std::equal(bytes, bytes + alignment, bytes + alignment));
  // I/O is direct: unaligned I/O is refused.
  EXPECT_EQ(pread(region->file(), bytes, alignment, offset + 1), -1);
}

TEST(FileRegionTest, OpeningKeepsTheContents) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  std::string text(64 * 1024, 'x');
  text.front() = 'a';
  text.back() = 'z';
  folder.write("blocks", text);
  ASSERT_TRUE(file_region({.path = path, .size = text.size(), .opening = FileOpening::kOpen}));
  std::ifstream file(path);
  const std::string after{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(after == text);
}

TEST(FileRegionTest, HolesOfAnOpenedFileAreSetAside) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  folder.write("blocks", "");
  ASSERT_EQ(truncate(path.c_str(), 1 << 20), 0);
  ASSERT_LT(facts_of(path).st_blocks * 512, 1 << 20);
  ASSERT_TRUE(file_region({.path = path, .size = kMiB, .opening = FileOpening::kOpen}));
  EXPECT_GE(facts_of(path).st_blocks * 512, 1 << 20);
}

TEST(FileRegionTest, PermissionsAreAsRequested) {
  const TestFolder folder;
  const mode_t before = umask(0);
  const Result<RegionPtr> made = file_region({.path = folder.in("blocks"), .size = 4096, .permissions = 0640});
  umask(before);
  ASSERT_TRUE(made);
  EXPECT_EQ(facts_of(folder.in("blocks")).st_mode & 0777, 0640U);
}

TEST(FileRegionTest, IsRemovedOnReleaseOnRequest) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  RegionPtr region = file_region({.path = path, .size = 4096, .remove_on_release = true}).value();
  EXPECT_TRUE(exists(path));
  region.reset();
  EXPECT_FALSE(exists(path));
  // Another file that took the name stays.
  region = file_region({.path = path, .size = 4096, .remove_on_release = true}).value();
  ASSERT_EQ(rename(path.c_str(), folder.in("old").c_str()), 0);
  folder.write("blocks", "someone else's");
  region.reset();
  EXPECT_TRUE(exists(path));
}

TEST(FileRegionTest, IsBufferedOnRequestOrIfTheSizeDoesNotFit) {
  const TestFolder folder;
  const RegionPtr buffered = file_region({.path = folder.in("a"), .size = 8192, .direct = false}).value();
  EXPECT_FALSE(buffered->is_direct());
  EXPECT_EQ(buffered->alignment(), 1U);
  EXPECT_THAT(buffered->notes(), IsEmpty());
  const RegionPtr odd = file_region({.path = folder.in("b"), .size = 10'001}).value();
  EXPECT_FALSE(odd->is_direct());
  EXPECT_EQ(fcntl(odd->file(), F_GETFL) & O_DIRECT, 0);
  EXPECT_THAT(odd->notes(), AllOf(HasSubstr("buffered"), HasSubstr("10001 bytes is not a multiple of")));
  EXPECT_EQ(facts_of(folder.in("b")).st_size, 10'001);  // the attempt did not make it longer
}

TEST(FileRegionTest, WrongRequests) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  EXPECT_THAT(text_of(file_region({.size = 1})), StartsWith("invalid_argument: a file without a name"));
  EXPECT_THAT(text_of(file_region({.path = path})),
              StartsWith("invalid_argument: a file of 0 bytes was requested at " + path));
  EXPECT_THAT(text_of(file_region({.path = path, .size = UINT64_MAX})), StartsWith("invalid_argument: " + path));
  EXPECT_THAT(text_of(file_region({.path = path, .size = 1, .opening = FileOpening::kOpen})),
              AllOf(StartsWith("not_found: opening " + path), HasSubstr("No such file")));
  EXPECT_THAT(text_of(file_region({.path = folder.in("no/blocks"), .size = 1})),
              AllOf(StartsWith("not_found: creating "), HasSubstr("make its directory first")));
  EXPECT_FALSE(exists(path));
  folder.write("blocks", "kept");
  EXPECT_THAT(text_of(file_region({.path = path, .size = 1})),
              AllOf(StartsWith("already_exists: creating " + path), HasSubstr("open it instead")));
  EXPECT_THAT(text_of(file_region({.path = path + "/x", .size = 1})), StartsWith("invalid_argument: creating "));
  EXPECT_THAT(text_of(file_region({.path = folder.path(), .size = 1, .opening = FileOpening::kOpen})),
              StartsWith("invalid_argument: opening "));
  EXPECT_THAT(text_of(file_region({.path = "/dev/null", .size = 1, .opening = FileOpening::kOpen})),
              HasSubstr("/dev/null is not a regular file"));
  ASSERT_EQ(mkfifo(folder.in("pipe").c_str(), 0600), 0);
  EXPECT_THAT(text_of(file_region({.path = folder.in("pipe"), .size = 1, .opening = FileOpening::kOpen})),
              HasSubstr("not a regular file"));
}

TEST(FileRegionTest, AFileOfAnotherSizeIsLeftAlone) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  ASSERT_TRUE(file_region({.path = path, .size = 8192}));
  ASSERT_EQ(truncate(path.c_str(), 5000), 0);
  EXPECT_THAT(text_of(file_region({.path = path, .size = 8192, .opening = FileOpening::kOpen})),
              AllOf(StartsWith("failed_precondition: " + path + " has 5000 bytes"), HasSubstr("8192 bytes"),
                    HasSubstr("cut short")));
  EXPECT_EQ(facts_of(path).st_size, 5000);
}

TEST(FileRegionTest, ADirectoryThatMayNotBeWritten) {
  const TestFolder folder;
  ASSERT_EQ(mkdir(folder.in("fixed").c_str(), 0555), 0);
  const std::string path = folder.in("fixed/blocks");
  const std::string text = in_child([&] {
    drop_rights();
    return text_of(file_region({.path = path, .size = 4096}));
  });
  EXPECT_THAT(text, AllOf(StartsWith("failed_precondition: creating " + path + ": Permission denied"),
                          HasSubstr("give this user the right")));
}

TEST(FileRegionTest, AFullDiskIsFoundBeforeItIsFilled) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  struct statvfs space{};
  ASSERT_EQ(statvfs(folder.path().c_str(), &space), 0);
  const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
  EXPECT_THAT(text_of(file_region({.path = path, .size = free + 1024 * kGiB})),
              AllOf(StartsWith("exhausted: reserving "), HasSubstr(path), HasSubstr("its file system has "),
                    HasSubstr("name another disk")));
  EXPECT_FALSE(exists(path));
}

TEST(FileRegionTest, TheLimitOnFilesIsAnErrorAndNoSignal) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  const std::string text = in_child([&] {
    set_limit(RLIMIT_FSIZE, kMiB);
    return text_of(file_region({.path = path, .size = kMiB + 1}));
  });
  EXPECT_THAT(text,
              AllOf(StartsWith("exhausted: "), HasSubstr("RLIMIT_FSIZE is 1048576 bytes"), HasSubstr("ulimit -f")));
  EXPECT_FALSE(exists(path));
}

// The result of `body` with another file system mounted at `folder`; "" if mounting is not permitted.
std::string with_mounted(const TestFolder& folder, const char* type, const char* options,
                         const std::function<std::string()>& body) {
  return in_child([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(type, folder.path().c_str(), type, 0, options) != 0) {
      return {};
    }
    return body();
  });
}

TEST(FileRegionTest, AFileSystemWithoutDirectIoAndWithoutSettingAside) {
  const TestFolder folder;
  const std::string text = with_mounted(folder, "ramfs", "", [&]() -> std::string {
    const Result<RegionPtr> made = file_region({.path = folder.in("blocks"), .size = 64 * 1024});
    if (!made) {
      return made.error().message;
    }
    char byte = 'x';
    const bool usable = pwrite((*made)->file(), &byte, 1, 65535) == 1 && pread((*made)->file(), &byte, 1, 0) == 1;
    return str_cat("direct ", (*made)->is_direct() ? 1 : 0, ", usable ", usable ? 1 : 0, ": ", (*made)->notes());
  });
  if (text.empty()) {
    GTEST_SKIP() << "mounting a file system is not permitted here";
  }
  EXPECT_THAT(text, AllOf(StartsWith("direct 0, usable 1: "), HasSubstr("no space reserved"), HasSubstr("buffered")));
}

TEST(FileRegionTest, ASmallFileSystem) {
  const TestFolder folder;
  const std::string text = with_mounted(folder, "tmpfs", "size=1m", [&] {
    return text_of(file_region({.path = folder.in("fits"), .size = 512 * 1024})) + " | " +
           text_of(file_region({.path = folder.in("blocks"), .size = 2 * kMiB})) +
           (exists(folder.in("blocks")) ? " | left behind" : "");
  });
  if (text.empty()) {
    GTEST_SKIP() << "mounting a file system is not permitted here";
  }
  EXPECT_THAT(text, AllOf(StartsWith("made: "), HasSubstr("| exhausted: reserving 2097152 bytes (2.0 MiB)"),
                          ::testing::Not(HasSubstr("left behind"))));
}

TEST(FileRegionTest, FilesInMemoryCountAsMemory) {
  const FakeMachine machine;
  machine.set_available(70 * kMiB);
  const TestFolder folder;
  const std::string text = with_mounted(folder, "tmpfs", "size=64m", [&] {
    return text_of(file_region({.path = folder.in("blocks"), .size = 32 * kMiB, .machine_root = machine.root()}));
  });
  if (text.empty()) {
    GTEST_SKIP() << "mounting a file system is not permitted here";
  }
  EXPECT_THAT(text, AllOf(StartsWith("exhausted: "), HasSubstr("which is in memory"), HasSubstr("MemAvailable")));
}

TEST(ExternalFileRegionTest, IsUsedAndNotClosed) {
  const TestFolder folder;
  folder.write("blocks", std::string(8192, 'x'));
  const int descriptor = open(folder.in("blocks").c_str(), O_RDWR | O_CLOEXEC);
  auto keep = std::make_shared<int>(1);
  RegionPtr region = external_file_region({.descriptor = descriptor, .size = 4096, .keep_alive = keep}).value();
  EXPECT_EQ(region->kind(), MemoryKind::kFile);
  EXPECT_EQ(region->file(), descriptor);
  EXPECT_EQ(region->size(), 4096U);
  EXPECT_TRUE(region->is_external());
  EXPECT_FALSE(region->is_direct());
  EXPECT_EQ(keep.use_count(), 2);
  region.reset();
  EXPECT_EQ(keep.use_count(), 1);
  EXPECT_GE(fcntl(descriptor, F_GETFD), 0);
  EXPECT_TRUE(exists(folder.in("blocks")));
  close(descriptor);
}

TEST(ExternalFileRegionTest, DirectAsItWasOpened) {
  const TestFolder folder;
  folder.write("blocks", std::string(64 * 1024, 'x'));
  const int descriptor = open(folder.in("blocks").c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  if (descriptor < 0) {
    GTEST_SKIP() << "no direct I/O here";
  }
  const RegionPtr region = external_file_region({.descriptor = descriptor, .size = 64 * 1024}).value();
  EXPECT_TRUE(region->is_direct());
  EXPECT_GE(region->alignment(), 512U);
  EXPECT_THAT(text_of(external_file_region({.descriptor = descriptor, .size = 1000})),
              AllOf(StartsWith("failed_precondition: "), HasSubstr("without O_DIRECT")));
  close(descriptor);
}

TEST(ExternalFileRegionTest, WrongRequests) {
  const TestFolder folder;
  folder.write("blocks", "1234");
  EXPECT_THAT(text_of(external_file_region({.descriptor = 0, .size = 0})), HasSubstr("0 bytes"));
  EXPECT_THAT(text_of(external_file_region({.descriptor = -1, .size = 1})), HasSubstr("Bad file descriptor"));
  const int read_only = open(folder.in("blocks").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_THAT(text_of(external_file_region({.descriptor = read_only, .size = 4})), HasSubstr("open it with O_RDWR"));
  close(read_only);
  const int descriptor = open(folder.in("blocks").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_THAT(text_of(external_file_region({.descriptor = descriptor, .size = 5})),
              HasSubstr("has 4 bytes, and 5 bytes"));
  close(descriptor);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_THAT(text_of(external_file_region({.descriptor = null, .size = 5})), HasSubstr("neither a regular file"));
  close(null);
}

}  // namespace
}  // namespace cairn
